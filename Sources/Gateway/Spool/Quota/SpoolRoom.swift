// What the spool may still take: the reserve of its file system, the quota of its files, and the bounds on
// the number of uploads, of all and of one client's that are not delivered yet.
//
// While there is room nothing is scanned: this process counts what it makes, writes and removes. Another
// process that purges is not seen; so before anything is refused for the quota or a bound the spool is counted
// again, one thread at a time and at a modest rate. Invariant: no byte is written and no upload made that was
// not taken here first.

import SpoolgatePosix
import SpoolgateUploadProtocol

/// How many uploads there may be.
package struct UploadBounds: Sendable, Equatable {
    /// Most uploads in the spool, those included whose response is kept; nil: no bound.
    package var total: Int?
    /// Most uploads of one client that are not delivered; nil: no bound.
    package var ofClient: Int?

    /// Makes bounds; without any, there are none.
    package init(total: Int? = nil, ofClient: Int? = nil) {
        self.total = total
        self.ofClient = ofClient
    }
}

/// How much may still be written, and how many uploads made.
///
/// Any thread.
final class SpoolRoom: Sendable {
    /// Most bytes of data files and records; nil: no limit.
    let quota: Int64?
    /// Bytes of records that do not count, so that the smallest quota is of use.
    static let freeRecords: Int64 = 64 << 10

    /// Files that stay free when an upload is begun, so that other programs can go on, and so can the
    /// uploads there are: what they still need is made without looking.
    private static let reservedFiles: Int64 = 1000
    /// Bytes that all uploads together may write between two looks at the free space.
    private static let lookInterval: Int64 = 64 << 20
    /// Bytes of content that all uploads together may keep in memory.
    private static let memory: Int64 = 8 << 20
    /// Bytes that are lent whatever share of the room that is.
    private static let leastLoan: Int64 = 4 << 10

    private struct State {
        /// Bytes to keep free on the file system.
        var reserve: Int64
        var bounds = UploadBounds()
        /// What this process knows of.
        var known = Census()
        /// Bytes without a name, in files and in memory, which a count does not find; and those in memory.
        var nameless: Int64 = 0
        var inMemory: Int64 = 0
        /// Bytes that another process may write and of which it has reported nothing: room, not content.
        var lent: Int64 = 0
        /// Bytes that may be written before the free space is looked at again.
        var allowance: Int64 = 0
        /// What was taken and is not made yet, so that a count which begins now may miss it.
        var pending = Census()
        /// What a count that is under way may miss: what was pending when it began, and was taken since;
        /// nil: there is none.
        var since: Census?
        /// Whether the last count may have found what was taken meanwhile as well.
        var isTooHigh = false
        /// When the next count may begin.
        var nextCount = Deadline.after(.zero)

        /// Bytes that count.
        var bytes: Int64 {
            known.data + nameless + lent + max(0, known.records - SpoolRoom.freeRecords)
        }

        /// Takes something that a count may or may not find: better too much than too little.
        mutating func take(_ body: (inout Census) -> Void) {
            body(&known)
            if var since {
                body(&since)
                self.since = since
            }
        }

        func fault(client: Int) -> UploadBound? {
            if let total = bounds.total, known.uploads >= total { return .total(total) }
            if let most = bounds.ofClient, known.unfinished[client, default: 0] >= most {
                return .ofClient(most)
            }
            return nil
        }
    }

    private let state: Monitor<State>
    private let layout: SpoolLayout
    private let leastCountInterval: Duration
    private var root: Directory { layout.root }

    /// Makes it over an opened spool; it knows of nothing before the first count.
    ///
    /// - Parameters:
    ///   - layout: the spool.
    ///   - reserve: bytes to keep free.
    ///   - quota: most bytes of content and records; nil: no limit.
    ///   - leastCountInterval: the shortest time between two counts.
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

    /// What is known.
    var figures: SpoolFigures {
        state.updateQuietly { state in
            SpoolFigures(
                uploads: state.known.uploads,
                unfinished: state.known.unfinished.values.reduce(0, +),
                bytes: state.known.data + state.nameless + state.known.records,
                reserve: state.reserve,
                quota: quota
            )
        }
    }

    /// Why every upload that needs a file would be refused now, as far as that is known without a count.
    ///
    /// - Parameter space: what is free on the file system; nil: not known.
    /// - Returns: `.full`, `.fewFiles`, `.overQuota`, `.tooMany`; empty: uploads are taken.
    func refusals(with space: FileSystemSpace?) -> [SpoolError] {
        // Numbers alone: a copy of the counts would make the next change copy them.
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

    // MARK: Asking and taking bytes

    /// Refuses content of `count` bytes, or of an unknown number, for which there is no room now.
    ///
    /// Nothing is taken. `makesFile`: an upload is begun, which takes files too.
    func check(for count: Int64, makesFile: Bool = false) throws(SpoolError) {
        try look(for: count, makesFile: makesFile)
        guard let quota else { return }
        try counted { state in
            let isOver = state.bytes >= quota || count > quota - state.bytes
            return isOver ? overQuota(count, used: state.bytes, quota: quota) : nil
        }
    }

    /// Takes `count` bytes of content that are about to be written; where they are named, `wasWritten` must
    /// follow.
    ///
    /// - Parameters:
    ///   - count: bytes.
    ///   - isNamed: whether they go to a file that a count of the spool finds.
    /// - Throws: `.full` below the reserve, `.overQuota` above the quota; then nothing was taken.
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

    /// Notes that the writing of `count` named bytes is over, whatever became of it.
    func wasWritten(_ count: Int64) { state.updateQuietly { $0.pending.data -= count } }

    /// Gives back bytes of content that were removed, or taken and not written.
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

    /// Takes `count` bytes of content that are to be kept in memory; false where too much is there already,
    /// and nothing was taken.
    ///
    /// - Throws: as `take`.
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

    /// Gives back memory of content; `isStored`: its bytes are in a file with a name now.
    func giveBackMemory(_ count: Int64, isStored: Bool) {
        state.update { state in
            state.inMemory -= count
            state.nameless -= count
            if isStored { state.take { $0.data += count } }
        }
    }

    // MARK: Lending bytes

    /// Lends room to another process that is about to write content; `endLoan` must follow for all of it.
    ///
    /// One loan takes at most a sixteenth of what is left, so that those who were lent room and write nothing
    /// never hold all of it.
    ///
    /// - Parameter count: the most bytes to lend, > 0.
    /// - Returns: the bytes that may be written, at least one: fewer than `count` if little room is left.
    /// - Throws: `.full`, `.overQuota` if there is no room at all; then nothing was lent.
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
                    // Another thread may have used it since.
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

    /// Notes that `count` bytes are no longer lent, and that the upload's content has grown by `written`.
    ///
    /// - Parameters:
    ///   - count: bytes, of those lent.
    ///   - written: bytes that are content now; below zero if content has gone.
    ///   - isCertain: false if nobody knows, so that they count as written until the next count.
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

    /// Notes bytes that a record grew by: what became of an upload is never refused.
    func noteRecord(_ count: Int64) { state.update { $0.take { $0.records += count } } }

    /// Gives back bytes of a record.
    func giveBackRecord(_ count: Int64) {
        state.update { $0.known.records = max(0, $0.known.records - count) }
    }

    // MARK: Uploads

    /// Changes the bounds; uploads there are stay.
    func setBounds(_ bounds: UploadBounds) { state.update { $0.bounds = bounds } }

    /// Takes a place for an upload that is about to be made, and the bytes of its record; `wasMade` must
    /// follow.
    ///
    /// - Throws: `.tooMany`, `.overQuota` above the quota; then nothing was taken.
    func takeUpload(of client: ClientName, record: Int64) throws(SpoolError) {
        let client = client.hashValue
        try counted { state in
            if let bound = state.fault(client: client) {
                return .tooMany(directory: root.path, bound)
            }
            var next = state
            next.take { $0.add(1, of: client, record: record) }
            if let quota, next.bytes != state.bytes, next.bytes > quota {
                return overQuota(record, used: state.bytes, quota: quota)
            }
            next.pending.add(1, of: client, record: record)
            state = next
            return nil
        }
    }

    /// Notes that the making of an upload is over, whatever became of it.
    func wasMade(_ client: ClientName, record: Int64) {
        state.updateQuietly { $0.pending.add(-1, of: client.hashValue, record: -record) }
    }

    /// Notes that an upload is delivered: only its response is kept.
    func noteFinished(of client: ClientName) {
        state.update { $0.known.add(-1, unfinishedOf: client.hashValue) }
    }

    /// Gives back the place of an upload that is gone, or was not made.
    func giveBackUpload(of client: ClientName?, isFinished: Bool) {
        state.update { state in
            state.known.add(-1, of: client?.hashValue ?? 0, isFinished: isFinished || client == nil)
        }
    }

    // MARK: The file system

    /// Changes how many bytes are to be kept free.
    func setReserve(_ reserve: Int64) {
        state.update { state in
            state.reserve = reserve
            // What may be written unlooked was found with the old one.
            state.allowance = 0
        }
    }

    /// Refuses where `count` more bytes would leave less than the reserve; gives how many would not.
    @discardableResult
    private func look(for count: Int64, makesFile: Bool = false) throws(SpoolError) -> Int64 {
        let space: FileSystemSpace
        do throws(SystemError) { space = try root.space() } catch { throw .disk(error) }
        if makesFile, let files = space.freeFiles, files < Self.reservedFiles {
            throw .fewFiles(directory: root.path, free: files, reserve: Self.reservedFiles)
        }
        // What is lent will be written without another look.
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

    /// Runs `attempt`, and once more after a count where it is refused.
    private func counted(_ attempt: (inout State) -> SpoolError?) throws(SpoolError) {
        guard state.update({ attempt(&$0) }) != nil else { return }
        countAgain()
        if let refusal = state.update({ attempt(&$0) }) { throw refusal }
    }

    /// Counts again, unless that was done just now; another thread's count will do.
    private func countAgain() {
        // A count that takes longer than this is another's trouble: the old figure stands.
        let isMine = state.wait(until: .after(.seconds(10))) { state -> Bool? in
            if state.since != nil { return nil }
            guard state.nextCount.hasPassed else { return false }
            state.since = state.pending
            return true
        }
        guard isMine == true else { return }
        let readsRecords = state.update { $0.bounds.ofClient != nil }
        // One that fails is no reason to refuse anything else than what is refused already.
        try? finish { () throws(SystemError) in try layout.census(readingRecords: readsRecords) }
    }

    /// Whether the figures may be too high, because something was taken while they were counted.
    var isTooHigh: Bool { state.updateQuietly { $0.isTooHigh } }

    /// Takes the result of a count that goes through the spool for another reason too.
    ///
    /// One that is under way already is left to end.
    func count<E: Error>(_ count: () throws(E) -> Census) throws(E) {
        let isMine = state.update { state in
            guard state.since == nil else { return false }
            state.since = state.pending
            return true
        }
        if isMine { try finish(count) } else { _ = try count() }
    }

    /// Counts, for the thread that has said so in `since`.
    ///
    /// What is taken meanwhile is added, so that the figure may be too high for a while and never too
    /// low.
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
                // A count finds what was written of a loan, and the next report adds it once more.
                state.isTooHigh = state.since.map { $0 != Census() } ?? false || state.lent > 0
                state.known = census
            }
            state.since = nil
            state.nextCount = .after(max(leastCountInterval, spent * 20))
        }
        _ = try counted.get()
    }
}
