// What the spool may still take: the reserve of its file system, and the quota of its files.
//
// While there is room nothing is scanned: bytes are counted as this process writes and removes them.
// Another process that purges is not seen; so before anything is refused for the quota the files are
// counted again, one thread at a time and at a modest rate. Invariant: no byte is written that was
// not taken here first.

import Posix
import UploadProtocol

/// How much may still be written.
///
/// Any thread.
final class SpoolRoom: Sendable {
    /// Bytes to keep free on the file system.
    let reserve: Int64
    /// Most bytes of data files and records; nil: no limit.
    let quota: Int64?
    /// Bytes of records that do not count, so that the smallest quota is of use.
    static let freeRecords: Int64 = 64 << 10

    /// Files that stay free when an upload is begun, so that other programs can go on, and so can the
    /// uploads there are: what they still need is made without looking.
    private static let reservedFiles: Int64 = 1000
    /// Bytes that all uploads together may write between two looks at the free space.
    private static let lookInterval: Int64 = 64 << 20

    private struct State {
        /// Bytes of the data files and scratch files, as far as this process knows.
        var used: Int64 = 0
        /// Bytes of the records.
        var records: Int64 = 0
        /// Of the used ones, bytes without a name, which a count does not find.
        var scratch: Int64 = 0
        /// Bytes that may be written before the free space is looked at again.
        var allowance: Int64 = 0
        /// Whether a thread counts the files, what was taken since, of content and of records, and when
        /// the next count may begin.
        var isCounting = false
        var takenSince: Int64 = 0
        var recordsSince: Int64 = 0
        var nextCount = Deadline.after(.zero)

        /// Bytes that count.
        var total: Int64 { used + max(0, records - SpoolRoom.freeRecords) }

        mutating func addRecord(_ count: Int64) {
            records += count
            if isCounting { recordsSince += count }
        }
    }

    private let state = Monitor(State())
    private let layout: SpoolLayout
    private let leastCountInterval: Duration

    /// Makes it over an opened spool and counts what is there.
    init(
        _ layout: SpoolLayout,
        reserve: Int64,
        quota: Int64?,
        leastCountInterval: Duration = .seconds(1)
    ) throws(SystemError) {
        self.layout = layout
        self.reserve = reserve
        self.quota = quota
        self.leastCountInterval = leastCountInterval
        try count()
    }

    // MARK: Asking and taking

    /// Refuses content of `count` bytes, or of an unknown number, for which there is no room now.
    ///
    /// Nothing is taken. `makesFile`: an upload is begun, which takes files too.
    func check(for count: Int64, makesFile: Bool = false) throws(SpoolError) {
        try look(for: count, makesFile: makesFile)
        guard let quota else { return }
        func excess(_ state: State) -> Int64? {
            state.total >= quota || count > quota - state.total ? state.total : nil
        }
        guard state.update({ excess($0) }) != nil else { return }
        countAgain()
        if let used = state.update({ excess($0) }) {
            throw overQuota(count, used: used, quota: quota)
        }
    }

    /// Takes `count` bytes that are about to be written.
    ///
    /// - Parameters:
    ///   - count: bytes.
    ///   - isNamed: whether they go to a file that a count of the spool finds.
    /// - Throws: `.full` below the reserve, `.overQuota` above the quota; then nothing was taken.
    func take(_ count: Int64, isNamed: Bool = true) throws(SpoolError) {
        var hasCounted = false
        while true {
            switch state.update({ attempt(count, isNamed, &$0) }) {
            case .taken: return
            case .noAllowance:
                let free = try look(for: count)
                let allowance = min(Self.lookInterval, free - reserve)
                state.update { $0.allowance = max(count, allowance) }
            case .overQuota(let used, let quota):
                guard !hasCounted else { throw overQuota(count, used: used, quota: quota) }
                countAgain()
                hasCounted = true
            }
        }
    }

    private enum Step {
        case taken
        case noAllowance
        case overQuota(used: Int64, quota: Int64)
    }

    private func attempt(_ count: Int64, _ isNamed: Bool, _ state: inout State) -> Step {
        if let quota, count > quota - state.total {
            return .overQuota(used: state.total, quota: quota)
        }
        guard count <= state.allowance else { return .noAllowance }
        state.allowance -= count
        state.used += count
        if !isNamed { state.scratch += count }
        if state.isCounting, isNamed { state.takenSince += count }
        return .taken
    }

    private func overQuota(_ count: Int64, used: Int64, quota: Int64) -> SpoolError {
        .overQuota(directory: layout.root.path, needed: count, used: used, quota: quota)
    }

    /// Gives back bytes that were removed, or taken and not written.
    func giveBack(_ count: Int64, isNamed: Bool = true) {
        guard count > 0 else { return }
        state.update { state in
            state.used = max(0, state.used - count)
            if !isNamed { state.scratch = max(0, state.scratch - count) }
        }
    }

    // MARK: Records

    /// Takes `count` bytes of a record that is about to be made; `.overQuota` above the quota.
    func takeRecord(_ count: Int64) throws(SpoolError) {
        guard let quota else { return }
        func attempt(_ state: inout State) -> Int64? {
            var next = state
            next.addRecord(count)
            guard next.total == state.total || next.total <= quota else { return state.total }
            state.addRecord(count)
            return nil
        }
        guard state.update({ attempt(&$0) }) != nil else { return }
        countAgain()
        if let used = state.update({ attempt(&$0) }) {
            throw overQuota(count, used: used, quota: quota)
        }
    }

    /// Notes bytes that a record grew by: what became of an upload is never refused.
    func noteRecord(_ count: Int64) {
        guard quota != nil else { return }
        state.update { $0.addRecord(count) }
    }

    /// Gives back bytes of a record.
    func giveBackRecord(_ count: Int64) {
        guard quota != nil, count > 0 else { return }
        state.update { $0.records = max(0, $0.records - count) }
    }

    /// Bytes of a record that is about to be removed; 0 where they do not count.
    func sizeOfRecord(_ name: String, in shard: Directory) throws(SystemError) -> Int64 {
        guard quota != nil else { return 0 }
        return try shard.status(of: name)?.size ?? 0
    }

    // MARK: The file system

    /// Refuses where `count` more bytes would leave less than the reserve; gives what is free.
    @discardableResult
    private func look(for count: Int64, makesFile: Bool = false) throws(SpoolError) -> Int64 {
        let space: FileSystemSpace
        do throws(SystemError) { space = try layout.root.space() } catch { throw .disk(error) }
        if makesFile, let files = space.freeFiles, files < Self.reservedFiles {
            throw .fewFiles(
                directory: layout.root.path,
                free: files,
                reserve: Self.reservedFiles
            )
        }
        guard space.freeBytes - reserve >= count else {
            throw .full(
                directory: layout.root.path,
                needed: count,
                free: space.freeBytes,
                reserve: reserve
            )
        }
        return space.freeBytes
    }

    // MARK: Counting

    /// Counts the files again, unless that was done just now; another thread's count will do.
    private func countAgain() {
        // A count that takes longer than this is another's trouble: the old figure stands.
        let isMine = state.wait(until: .after(.seconds(10))) { state -> Bool? in
            if state.isCounting { return nil }
            guard state.nextCount.hasPassed else { return false }
            state.isCounting = true
            state.takenSince = 0
            state.recordsSince = 0
            return true
        }
        guard isMine == true else { return }
        // One that fails is no reason to refuse anything else than what is refused already.
        try? count()
    }

    /// Counts the files.
    ///
    /// What is taken meanwhile is added, so that the figure may be too high for a while and never too
    /// low.
    func count() throws(SystemError) {
        guard quota != nil else { return }
        let begin = Deadline.after(.zero)
        let counted: Result<(data: Int64, records: Int64), SystemError>
        do throws(SystemError) {
            counted = .success(
                (
                    try layout.size(of: [layout.data]),
                    // Those in `corrupt` included.
                    try layout.size(of: Queue.allCases.map { layout[$0] })
                )
            )
        } catch {
            counted = .failure(error)
        }
        let spent = Duration.nanoseconds(
            Int64(Deadline.after(.zero).nanoseconds - begin.nanoseconds)
        )
        state.update { state in
            if case .success(let size) = counted {
                state.used = size.data + state.scratch + state.takenSince
                state.records = size.records + state.recordsSince
            }
            state.isCounting = false
            state.takenSince = 0
            state.recordsSince = 0
            state.nextCount = .after(max(leastCountInterval, spent * 20))
        }
        _ = try counted.get()
    }
}

extension SpoolLayout {
    /// Bytes of all files in the subdirectories of `places`.
    fileprivate func size(of places: [Shards]) throws(SystemError) -> Int64 {
        var size: Int64 = 0
        try walk(places) { (id, place) throws(SystemError) in
            size += try places[place].status(of: FileName(id))?.size ?? 0
        }
        return size
    }
}
