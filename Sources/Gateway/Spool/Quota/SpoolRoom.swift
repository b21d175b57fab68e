// The remaining room of the spool: its reserve, its quota, and the limits on the number of uploads.
//
// While there is room, this process only counts the uploads and bytes that it creates, writes and removes. Because
// another process may purge uploads, the spool is counted again, by one thread at a time and at a limited rate, before
// the quota or a limit rejects an upload. Invariant: every byte and every upload is reserved here before it is written
// or created.

import SpoolgatePosix
import SpoolgateUploadProtocol

/// The limits on the number of uploads.
package struct UploadBounds: Sendable, Equatable {
    /// The maximum number of uploads, including delivered ones with a stored response, or nil if unlimited.
    package var total: Int?
    /// The maximum number of undelivered uploads of one client, or nil if unlimited.
    package var ofClient: Int?

    /// Creates limits; the default is unlimited.
    package init(total: Int? = nil, ofClient: Int? = nil) {
        self.total = total
        self.ofClient = ofClient
    }
}

/// The bookkeeping of bytes and uploads that are still allowed; thread-safe.
final class SpoolRoom: Sendable {
    /// The maximum number of bytes of data files and records, or nil if unlimited.
    let quota: Int64?
    /// The number of bytes of records that do not count against the quota, so that even the smallest quota is useful.
    static let freeRecords: Int64 = 64 << 10

    /// The number of files left for other programs and for existing uploads, whose files are created without a check.
    private static let reservedFiles: Int64 = 1000
    /// The number of bytes that may be written between two checks of the free space.
    private static let lookInterval: Int64 = 64 << 20
    /// The maximum number of bytes of content in memory, for all uploads together.
    private static let memory: Int64 = 8 << 20
    /// The number of bytes that may be lent even if they exceed the usual share of the remaining space.
    private static let leastLoan: Int64 = 4 << 10

    private struct State {
        var reserve: Int64
        var bounds = UploadBounds()
        var known = Census()
        /// The number of bytes in memory and in files without a name, which a count of the spool does not find.
        var nameless: Int64 = 0
        var inMemory: Int64 = 0
        /// The number of bytes reserved for another process, such as nginx, which has not reported them as written.
        var lent: Int64 = 0
        /// The number of bytes that may be written before the next check of the free space.
        var allowance: Int64 = 0
        /// The reservations for files that a count starting now may miss.
        var pending = Census()
        /// The part that the running count may miss: `pending` at its start and everything reserved since.
        ///
        /// Nil if no count is running.
        var since: Census?
        /// Whether the figures may be too high, for example because reservations during the last count were counted
        /// twice.
        var isTooHigh = false
        /// The earliest start of the next count.
        var nextCount = Deadline.after(.zero)

        /// The number of bytes that count against the quota.
        var bytes: Int64 { bytes(withRecord: 0) }

        /// The number of bytes that will count against the quota after a record of `record` bytes is added.
        func bytes(withRecord record: Int64) -> Int64 {
            known.data + nameless + lent + max(0, known.records + record - SpoolRoom.freeRecords)
        }

        /// Reserves space that a running count may or may not find; a figure may become too high but never too low.
        mutating func take(_ body: (inout Census) -> Void) {
            // In place, because each copy would copy the counts of all clients.
            body(&known)
            since?.change(body)
        }

        func fault(client: Int) -> UploadBound? {
            if let total = bounds.total, known.uploads >= total { return .total(total) }
            if let maximum = bounds.ofClient, known.unfinished[client, default: 0] >= maximum {
                return .ofClient(maximum)
            }
            return nil
        }
    }

    private let state: Monitor<State>
    private let layout: SpoolLayout
    private let leastCountInterval: Duration
    private var root: Directory { layout.root }

    /// Creates the bookkeeping of a spool; all numbers are zero until the first count.
    init(
        _ layout: SpoolLayout,
        reserve: Int64,
        quota: Int64?,
        leastCountInterval: Duration = .seconds(1)
    ) {
        self.layout = layout
        state = Monitor(State(reserve: reserve))
        self.quota = quota
        self.leastCountInterval = leastCountInterval
    }

    var figures: SpoolFigures {
        state.updateQuietly { state in
            SpoolFigures(
                uploads: state.known.uploads,
                unfinished: state.known.unfinishedTotal,
                bytes: state.known.data + state.nameless + state.known.records,
                reserve: state.reserve,
                quota: quota
            )
        }
    }

    /// Implements `Spool.refusals(with:)`, without a count.
    func refusals(with space: FileSystemSpace?) -> [SpoolError] {
        // Reads only numbers, because a copy of the counts would make the next change copy them.
        let (reserve, lent, bytes, uploads, total) = state.updateQuietly {
            ($0.reserve, $0.lent, $0.bytes, $0.known.uploads, $0.bounds.total)
        }
        var all: [SpoolError] = []
        if let space {
            let free = space.freeBytes - lent
            if free <= reserve {
                all.append(.full(directory: root.path, needed: 0, free: free, reserve: reserve))
            }
            if let files = space.freeFiles, files < Self.reservedFiles {
                all.append(
                    .fewFiles(directory: root.path, free: files, reserve: Self.reservedFiles)
                )
            }
        }
        if let quota, bytes >= quota { all.append(overQuota(0, used: bytes, quota: quota)) }
        if let total, uploads >= total {
            all.append(.tooMany(directory: root.path, .total(total)))
        }
        return all
    }

    // MARK: Checking and taking bytes

    /// Throws an error if `count` more bytes of content would currently exceed a limit.
    ///
    /// Pass 0 if the size is unknown. Reserves nothing.
    ///
    /// - Throws: `.full`, `.overQuota`, or, if `makesFile` is true, `.fewFiles`; `.disk` if the free space cannot be
    ///   determined.
    func check(for count: Int64, makesFile: Bool = false) throws(SpoolError) {
        try look(for: count, makesFile: makesFile)
        guard let quota else { return }
        try counted { state in
            let exceeds = state.bytes >= quota || count > quota - state.bytes
            return exceeds ? overQuota(count, used: state.bytes, quota: quota) : nil
        }
    }

    /// Reserves space for `count` bytes of content that are about to be written.
    ///
    /// Pass true as `isNamed` if the file has a name, so that a count finds the bytes, and call `wasWritten(_:)` after
    /// the write.
    ///
    /// - Throws: `.full` or `.overQuota`; nothing is reserved then.
    func take(_ count: Int64, isNamed: Bool = true) throws(SpoolError) {
        while true {
            var isShort = false
            try counted { state in
                if let quota, count > quota - state.bytes {
                    return overQuota(count, used: state.bytes, quota: quota)
                }
                isShort = count > state.allowance
                if isShort { return nil }
                state.allowance -= count
                if isNamed {
                    state.take { $0.data += count }
                    state.pending.data += count
                } else {
                    state.nameless += count
                }
                return nil
            }
            guard isShort else { return }
            let free = try look(for: count)
            state.update { $0.allowance = max(count, min(Self.lookInterval, free)) }
        }
    }

    /// Records that a write of `count` bytes to a file with a name has ended, with or without success.
    func wasWritten(_ count: Int64) { state.updateQuietly { $0.pending.data -= count } }

    /// Frees the space of content that was removed or never written.
    func giveBack(_ count: Int64, isNamed: Bool = true) {
        guard count > 0 else { return }
        state.update { state in
            if isNamed {
                state.known.data = max(0, state.known.data - count)
            } else {
                state.nameless = max(0, state.nameless - count)
            }
        }
    }

    /// Reserves memory and space for `count` bytes of content, or returns false if too many bytes are in memory.
    func takeMemory(_ count: Int64) throws(SpoolError) -> Bool {
        let isTaken = state.update { state in
            guard state.inMemory + count <= Self.memory else { return false }
            state.inMemory += count
            return true
        }
        guard isTaken else { return false }
        do throws(SpoolError) { try take(count, isNamed: false) } catch {
            state.update { $0.inMemory -= count }
            throw error
        }
        return true
    }

    /// Frees `count` bytes of memory.
    ///
    /// Pass true as `isStored` if the content is now in a file with a name.
    func giveBackMemory(_ count: Int64, isStored: Bool) {
        state.update { state in
            state.inMemory -= count
            state.nameless -= count
            if isStored { state.take { $0.data += count } }
        }
    }

    // MARK: Lending bytes

    /// Lends up to `count` bytes to another process, such as nginx.
    ///
    /// Returns the number of bytes that the process may write, at least one. `count` must be positive.
    ///
    /// A loan of more than 4 KiB is at most a sixteenth of the remaining space, so that idle borrowers never hold all
    /// the space. Call `endLoan` until the whole loan has ended.
    ///
    /// - Throws: `.full` or `.overQuota`; nothing is lent then.
    func lend(upTo count: Int64) throws(SpoolError) -> Int64 {
        var hasLooked = false
        while true {
            var lent: Int64 = 0
            try counted { state in
                lent = count
                if let quota {
                    guard quota > state.bytes else {
                        return overQuota(1, used: state.bytes, quota: quota)
                    }
                    lent = Self.loan(of: quota - state.bytes, upTo: lent)
                }
                if lent > state.allowance {
                    // Another thread may have used the room since.
                    lent = hasLooked ? Self.loan(of: state.allowance, upTo: lent) : 0
                }
                state.allowance -= lent
                state.lent += lent
                return nil
            }
            guard lent == 0 else { return lent }
            let free = try look(for: 1)
            state.updateQuietly { $0.allowance = min(Self.lookInterval, free) }
            hasLooked = true
        }
    }

    private static func loan(of room: Int64, upTo count: Int64) -> Int64 {
        min(count, room, max(room / 16, leastLoan))
    }

    /// Records that `count` bytes are no longer lent and the content has grown by `written` bytes, or shrunk if
    /// `written` is negative.
    ///
    /// If `isCertain` is false, fewer bytes may have been written, but all count until the next count of the spool.
    func endLoan(of count: Int64, written: Int64, isCertain: Bool = true) {
        state.updateQuietly { state in
            state.lent -= count
            if written > 0 {
                state.take { $0.data += written }
            } else {
                state.known.data = max(0, state.known.data + written)
            }
            if !isCertain { state.isTooHigh = true }
        }
    }

    // MARK: Records

    /// Counts `count` more bytes of a record.
    ///
    /// Never fails, so that an upload's state can be written even if no space is left.
    func noteRecord(_ count: Int64) { state.update { $0.take { $0.records += count } } }

    func giveBackRecord(_ count: Int64) {
        state.update { $0.known.records = max(0, $0.known.records - count) }
    }

    // MARK: Uploads

    func setBounds(_ bounds: UploadBounds) { state.update { $0.bounds = bounds } }

    /// Reserves `record` bytes and one upload that is about to be created.
    ///
    /// Call `wasMade` after the creation.
    ///
    /// - Throws: `.tooMany` or `.overQuota`; nothing is reserved then.
    func takeUpload(of client: ClientName, record: Int64) throws(SpoolError) {
        let client = client.hashValue
        try counted { state in
            if let bound = state.fault(client: client) {
                return .tooMany(directory: root.path, bound)
            }
            let (used, next) = (state.bytes, state.bytes(withRecord: record))
            if let quota, next != used, next > quota {
                return overQuota(record, used: used, quota: quota)
            }
            state.take { $0.add(1, of: client, record: record) }
            state.pending.add(1, of: client, record: record)
            return nil
        }
    }

    /// Records that a creation has ended, with or without success.
    func wasMade(_ client: ClientName, record: Int64) {
        state.updateQuietly { $0.pending.add(-1, of: client.hashValue, record: -record) }
    }

    /// Records that an upload was delivered and no longer counts against its client's limit.
    func noteFinished(of client: ClientName) {
        state.update { $0.known.add(-1, unfinishedOf: client.hashValue) }
    }

    /// Records that an upload was removed, or could not be created.
    func giveBackUpload(of client: ClientName?, isFinished: Bool) {
        state.update { state in
            state.known.add(-1, of: client?.hashValue ?? 0, isFinished: isFinished || client == nil)
        }
    }

    // MARK: The file system

    func setReserve(_ reserve: Int64) {
        state.update { state in
            state.reserve = reserve
            // The allowance was determined with the old reserve.
            state.allowance = 0
        }
    }

    /// Returns the number of bytes that may be written before the reserve is reached.
    ///
    /// Throws an error if the number is less than `count`.
    @discardableResult
    private func look(for count: Int64, makesFile: Bool = false) throws(SpoolError) -> Int64 {
        let space: FileSystemSpace
        do throws(SystemError) { space = try root.space() } catch { throw .disk(error) }
        if makesFile, let files = space.freeFiles, files < Self.reservedFiles {
            throw .fewFiles(directory: root.path, free: files, reserve: Self.reservedFiles)
        }
        // Lent bytes will be written without another check.
        let (reserve, free) = state.updateQuietly { ($0.reserve, space.freeBytes - $0.lent) }
        guard free - reserve >= count else {
            throw .full(directory: root.path, needed: count, free: free, reserve: reserve)
        }
        return free - reserve
    }

    private func overQuota(_ count: Int64, used: Int64, quota: Int64) -> SpoolError {
        .overQuota(directory: root.path, needed: count, used: used, quota: quota)
    }

    // MARK: Counting

    /// Runs `attempt`, and if an error is returned, counts the spool and runs `attempt` again.
    private func counted(_ attempt: (inout State) -> SpoolError?) throws(SpoolError) {
        guard state.update({ attempt(&$0) }) != nil else { return }
        countAgain()
        if let refusal = state.update({ attempt(&$0) }) { throw refusal }
    }

    /// Counts the spool unless a count has just ended.
    ///
    /// If another thread is counting, waits for its result.
    private func countAgain() {
        // If another thread's count takes longer than this, the old figures stay.
        let isMine = state.wait(until: .after(.seconds(10))) { state -> Bool? in
            if state.since != nil { return nil }
            guard state.nextCount.hasPassed else { return false }
            state.since = state.pending
            return true
        }
        guard isMine == true else { return }
        let readsRecords = state.update { $0.bounds.ofClient != nil }
        // If the count fails, the earlier figures stay.
        try? finish { () throws(SystemError) in try layout.census(readingRecords: readsRecords) }
    }

    var isTooHigh: Bool { state.updateQuietly { $0.isTooHigh } }

    /// Uses the result of a walk through the spool as a count, unless another count is running.
    func count<E: Error>(_ count: () throws(E) -> Census) throws(E) {
        let isMine = state.update { state in
            guard state.since == nil else { return false }
            state.since = state.pending
            return true
        }
        if isMine { try finish(count) } else { _ = try count() }
    }

    /// Counts the spool; called by the thread that has set `since`.
    ///
    /// Adds the space reserved meanwhile.
    private func finish<E: Error>(_ count: () throws(E) -> Census) throws(E) {
        let begin = Deadline.after(.zero)
        let counted: Result<Census, E>
        do throws(E) { counted = .success(try count()) } catch { counted = .failure(error) }
        let spent = Duration.nanoseconds(
            Int64(Deadline.after(.zero).nanoseconds - begin.nanoseconds)
        )
        state.update { state in
            if case .success(var census) = counted {
                if let since = state.since { census += since }
                // A count includes the written part of a loan, and the next report adds it once more.
                state.isTooHigh = state.since.map { $0 != Census() } ?? false || state.lent > 0
                state.known = census
            }
            state.since = nil
            state.nextCount = .after(max(leastCountInterval, spent * 20))
        }
        _ = try counted.get()
    }
}
