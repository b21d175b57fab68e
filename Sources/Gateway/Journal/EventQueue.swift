// The webhook's queue on the disk: lines that any process adds and one process sends, in order; see
// spoolgate-spool(5), events.
//
// Lines are added to `pending`; the sender takes that file by renaming it to `sending`, marks each
// line when it is done, and removes the file when all are. One thread of a process writes the lines of all its
// threads. If another process keeps the lock on `pending`, it writes them to a file of its own, `late-...`, which
// the sender takes as it takes `pending`. Invariant: a line is added only under the lock on a file that is in its
// place, and a file is removed only under its lock with no line left.

import SpoolgateCrypto
import SpoolgatePosix
import SpoolgateSpool
import SpoolgateUploadProtocol

/// The queue of one spool.
///
/// Any thread adds; one thread of one process sends.
final class EventQueue: Sendable {
    /// What is to be written, and by whom.
    private struct Backlog {
        /// Lines that no thread writes yet, in order.
        var lines: [String] = []
        /// Lines there were, and those that were written or lost.
        var noted = 0
        var done = 0
        /// Whether a thread writes; only that one uses `late`.
        var isWriting = false
        /// Whether a thread has left its line to the one that writes.
        var isLeft = false
        /// This process's own file, locked, and until when lines go there.
        var late: AppendedFile?
        var lateEnd = Deadline.after(.zero)

        /// What a thread does about its line; nil: wait for the one that writes, or, if it is not patient, leave the
        /// line to that one.
        mutating func turn(for number: Int, isPatient: Bool = true) -> Turn? {
            if done >= number { return .over }
            if isWriting {
                if !isPatient { isLeft = true }
                return nil
            }
            isWriting = true
            return .write(takeLines())
        }

        /// Ends the writing of so many lines; gives those that are to be written next by the same thread.
        mutating func end(_ count: Int) -> [String]? {
            done += count
            guard isLeft, !lines.isEmpty else {
                isWriting = false
                return nil
            }
            return takeLines()
        }

        private mutating func takeLines() -> [String] {
            isLeft = false
            defer { lines = [] }
            return lines
        }
    }

    /// What a thread does about its line.
    private enum Turn {
        /// Write these lines, of all threads that wait.
        case write([String])
        /// Nothing: it is written, or lost.
        case over
    }

    /// Who the spool belongs to; nil where that cannot be seen.
    let owner: UInt32?
    /// Events added here since `pending` was taken, and those left of what is being sent.
    let added = Counter()
    let left = Counter()
    private let spool: String
    /// How long a line waits for the lock on `pending`, which other processes keep for moments only.
    private let patience: Duration
    private let backlog = Monitor(Backlog())
    private let onLoss: @Sendable (_ count: Int, SystemError) -> Void
    /// Most bytes of a file of the queue.
    static let fileLimit: Int64 = 32 << 20
    /// How long a thread waits for the one that writes its line; longer only the disk keeps it.
    private static let longestWait = Duration.milliseconds(200)
    /// How long lines go to a file of this process once there is one.
    private static let lateSpan = Duration.seconds(1)
    private static let latePrefix = "late-"
    private static let mode: UInt32 = 0o600

    /// The queue in a spool; makes nothing.
    ///
    /// - Parameters:
    ///   - spool: the spool's directory.
    ///   - patience: how long a line waits for another process.
    ///   - onLoss: called with the number of events that could not be written, and why.
    init(
        spool: String,
        patience: Duration = .milliseconds(10),
        onLoss: @escaping @Sendable (_ count: Int, SystemError) -> Void = { _, _ in }
    ) {
        self.patience = patience
        self.spool = spool
        self.onLoss = onLoss
        // Without it, a file that root makes is root's.
        owner = try? Directory(path: spool).status().owner
    }

    // MARK: Adding

    /// Adds an event; survives the death of the process, not a power cut.
    ///
    /// One that cannot be written is lost, and `onLoss` is called.
    func add(_ event: String, at time: WallTime) {
        let line = QueuedEvent(time: time, json: event).line
        let number = backlog.updateQuietly { backlog in
            backlog.lines.append(line)
            backlog.noted += 1
            return backlog.noted
        }
        let turn = backlog.wait(until: .after(Self.longestWait), isQuiet: true) {
            $0.turn(for: number)
        }
        // A disk that stalls keeps the thread that writes, but no other: that one writes this line too.
        switch turn ?? backlog.updateQuietly({ $0.turn(for: number, isPatient: false) }) {
        case .write(let lines): work(lines)
        case .over, nil: break
        }
    }

    /// Writes lines, then those that other threads have left.
    private func work(_ lines: [String]) {
        var next: [String]? = lines
        while let lines = next {
            write(lines)
            next = backlog.update { $0.end(lines.count) }
        }
    }

    /// Writes lines by one call, or one by one where that fails.
    private func write(_ lines: [String]) {
        var lost: (count: Int, error: SystemError)?
        do throws(SystemError) {
            let file = try fileForLines()
            do throws(SystemError) {
                try add(lines.joined(separator: "\n"), to: file)
            } catch {
                for line in lines {
                    do throws(SystemError) { try add(line, to: file) } catch {
                        lost = ((lost?.count ?? 0) + 1, error)
                    }
                }
            }
        } catch {
            lost = (lines.count, error)
        }
        added.add(lines.count - (lost?.count ?? 0))
        if let lost { onLoss(lost.count, lost.error) }
    }

    /// The file that lines go to now, locked.
    private func fileForLines() throws(SystemError) -> AppendedFile {
        let late = backlog.updateQuietly { $0.lateEnd.hasPassed ? nil : $0.late }
        if let late { return late }
        let deadline = Deadline.after(patience)
        while true {
            let file = try openPending()
            if try file.descriptor.tryLock(subject: file.path) {
                // Else it was renamed before the lock was had: the sender may be done with it.
                guard file.isInPlace else { continue }
                closeLate()
                return file
            }
            if deadline.hasPassed { break }
            Thread.pause(.milliseconds(2))
        }
        // No upload waits for another process, and its death loses nothing.
        let file = try makeLate()
        backlog.updateQuietly { backlog in
            backlog.late = file
            backlog.lateEnd = .after(Self.lateSpan)
        }
        return file
    }

    private func makeLate() throws(SystemError) -> AppendedFile {
        while true {
            // By its name the sender knows which is older.
            let name = "\(Self.latePrefix)\(WallTime.now.seconds)-\(RandomToken.make())"
            let file = try open(name)
            // A sender may have found it before it was locked.
            if try file.descriptor.tryLock(subject: file.path), file.isInPlace { return file }
        }
    }

    /// Leaves this process's own file to the sender once its time is over.
    private func closeLate() {
        // Closed outside the lock.
        let late = backlog.updateQuietly { backlog -> AppendedFile? in
            guard backlog.lateEnd.hasPassed else { return nil }
            defer { backlog.late = nil }
            return backlog.late
        }
        withExtendedLifetime(late) {}
    }

    /// Leaves this process's own file to the sender if nothing is written there any more.
    func settle() {
        let isFree = backlog.updateQuietly { backlog in
            guard !backlog.isWriting, backlog.late != nil, backlog.lateEnd.hasPassed else {
                return false
            }
            backlog.isWriting = true
            return true
        }
        guard isFree else { return }
        closeLate()
        if let lines = backlog.update({ $0.end(0) }) { work(lines) }
    }

    private func openPending() throws(SystemError) -> AppendedFile {
        do throws(SystemError) {
            return try open("pending")
        } catch {
            guard error.errno == SystemError.gone else { throw error }
            try makeDirectory()
            return try open("pending")
        }
    }

    private func open(_ name: String) throws(SystemError) -> AppendedFile {
        try AppendedFile(path: name, in: try directory(), mode: Self.mode, owner: owner)
    }

    /// The queue's directory, if it is one: root works here as well, and must not follow a link.
    private func directory() throws(SystemError) -> Directory {
        try Directory("events", in: try Directory(path: spool))
    }

    private func makeDirectory() throws(SystemError) {
        try AppendedFile.makeDirectory(path: "\(spool)/events", owner: owner)
    }

    private func add(_ line: String, to file: AppendedFile) throws(SystemError) {
        let size = file.size
        guard size + Int64(line.utf8.count) < Self.fileLimit else {
            throw SystemError(call: "write", subject: file.path, errno: SystemError.tooLarge)
        }
        do throws(SystemError) { try file.add(line: line) } catch {
            // What was written of it would spoil the next line. If this fails, the sender passes over
            // both.
            try? Disk().truncate(file.descriptor, to: size, subject: file.path)
            throw error
        }
    }

    // MARK: Sending

    /// Takes the sender's place; nil while another process has it.
    func takeSender() throws(SystemError) -> AppendedFile? {
        try makeDirectory()
        let file = try open("sender")
        return try file.descriptor.tryLock(subject: file.path) ? file : nil
    }

    /// Opens the file whose lines are to be sent next; nil where there is none.
    func batch() throws(SystemError) -> EventBatch? {
        let directory = try directory()
        if let file = try directory.open("sending", forWriting: true) {
            return try EventBatch(file, in: directory, left: left)
        }
        if try takeLate(in: directory), let file = try directory.open("sending", forWriting: true) {
            return try EventBatch(file, in: directory, left: left)
        }
        guard let status = try directory.status(of: "pending"), status.size > 0 else { return nil }
        added.set(0)
        try Disk().rename("pending", in: directory, to: "sending", in: directory)
        guard let file = try directory.open("sending", forWriting: true) else { return nil }
        return try EventBatch(file, in: directory, left: left)
    }

    /// Takes the oldest file that some process has written beside `pending` and does not write any more.
    private func takeLate(in directory: Directory) throws(SystemError) -> Bool {
        settle()
        let names = try directory.names().filter { $0.hasPrefix(Self.latePrefix) }.sorted()
        for name in names {
            guard let file = try directory.open(name, forWriting: true),
                try file.tryLock(subject: directory.path(of: name))
            else { continue }
            guard try file.status(subject: directory.path(of: name)).size > 0 else {
                try Disk().unlink(name, in: directory)
                continue
            }
            try Disk().rename(name, in: directory, to: "sending", in: directory)
            return true
        }
        return false
    }
}

/// One event as a line of the queue.
struct QueuedEvent {
    /// What tells its deliveries from those of other events.
    var id: String
    /// When it happened.
    var time: WallTime
    /// The event.
    var json: String

    /// An event that is new in the queue.
    init(time: WallTime, json: String) {
        id = RandomToken.make()
        self.time = time
        self.json = json
    }

    /// Reads a line; nil where it is done, or no line of a queue.
    init?(line: String) {
        let words = line.split(separator: " ", maxSplits: 3)
        guard words.count == 4, words[0] == "-", words[3].hasPrefix("{"), words[3].hasSuffix("}"),
            let seconds = Int64(words[2])
        else { return nil }
        id = String(words[1])
        time = WallTime(seconds: seconds)
        json = String(words[3])
    }

    /// The line: a mark, the identity, the time in seconds and the event.
    var line: String { "- \(id) \(time.seconds) \(json)" }
}

/// A file of the queue that is being sent.
///
/// One thread.
final class EventBatch {
    /// What there is at a place in the file.
    enum Step {
        /// An event, to be sent; call `advance` once it is done.
        case event(QueuedEvent)
        /// A line that is done, or that is no event.
        case skipped
        /// Every line is done.
        case end
    }

    private let file: Descriptor
    private let directory: Directory
    private var position: Int64 = 0
    private var next: Int64 = 0
    /// Bytes of the file from `position` on, read ahead.
    private var ahead: ArraySlice<UInt8> = []
    /// Longest line that is believed to be one.
    private static let lineLimit = 256 << 10
    private var path: String { directory.path(of: "sending") }
    /// Events that are not done.
    private let left: Counter

    /// Begins at the first line; `left` gets the number of events that are not done.
    init(
        _ file: consuming Descriptor,
        in directory: Directory,
        left: Counter
    ) throws(SystemError) {
        self.file = file
        self.directory = directory
        self.left = left
        left.set(try count())
    }

    /// Lines with the mark of an event that is not done.
    private func count() throws(SystemError) -> Int {
        var (count, place, isStart) = (0, Int64(0), true)
        while true {
            let bytes = try file.bytes(at: place, count: Self.lineLimit, subject: path)
            guard !bytes.isEmpty else { return count }
            for byte in bytes {
                if isStart, byte == UInt8(ascii: "-") { count += 1 }
                isStart = byte == UInt8(ascii: "\n")
            }
            place += Int64(bytes.count)
        }
    }

    /// Looks at the line at the place reached.
    func look() throws(SystemError) -> Step {
        if !ahead.contains(UInt8(ascii: "\n")) {
            ahead = try file.bytes(at: position, count: Self.lineLimit, subject: path)[...]
        }
        guard let end = ahead.firstIndex(of: UInt8(ascii: "\n")) else {
            // A line that is being written, or one that never will be whole.
            next = position + Int64(ahead.count)
            return ahead.count < Self.lineLimit ? .end : .skipped
        }
        next = position + Int64(end - ahead.startIndex) + 1
        let line = String(decoding: ahead[..<end], as: UTF8.self)
        return QueuedEvent(line: line).map { .event($0) } ?? .skipped
    }

    /// Goes behind the line looked at last, and marks it as done where it was an event.
    func advance(marking: Bool) throws(SystemError) {
        if marking {
            var place = position
            let mark: [UInt8] = [UInt8(ascii: "+")]
            try Disk().write(mark.span.bytes, to: file, at: &place, subject: path)
            left.add(-1)
        }
        ahead = ahead.dropFirst(Int(next - position))
        position = next
    }

    /// Removes the file if every line of it is done.
    ///
    /// - Returns: false where a line was added meanwhile.
    func remove() throws(SystemError) -> Bool {
        guard let locked = try directory.open("sending", forWriting: true) else { return true }
        try locked.lock(subject: path)
        switch try look() {
        case .event, .skipped: return false
        case .end:
            try Disk().unlink("sending", in: directory)
            return true
        }
    }
}
