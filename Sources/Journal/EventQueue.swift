// The webhook's queue on the disk: lines that any process adds and one process sends, in order; see
// spoolgate-spool(5), events.
//
// Lines are added to `pending`; the sender takes that file by renaming it to `sending`, marks each
// line when it is done, and removes the file when all are. Invariant: a line is added only under the
// lock on a file that is `pending`, and a file is removed only under its lock with no line left.

import Crypto
import Posix
import Spool
import UploadProtocol

/// The queue of one spool.
///
/// Any thread adds; one thread of one process sends.
final class EventQueue: Sendable {
    /// Who the spool belongs to; nil where that cannot be seen.
    let owner: UInt32?
    /// Events added here since `pending` was taken, and those left of what is being sent.
    let added = Tally()
    let left = Tally()
    private let spool: String
    /// How long an event waits for the queue's lock; whoever has it lets go at once.
    private let patience: Duration
    /// Most bytes of a file of the queue, of which there are two.
    static let fileLimit: Int64 = 32 << 20
    private static let mode: UInt32 = 0o600

    /// The queue in a spool; makes nothing.
    init(spool: String, patience: Duration = .milliseconds(200)) {
        self.patience = patience
        self.spool = spool
        // Without it, a file that root makes is root's.
        owner = try? Directory(path: spool).status().owner
    }

    // MARK: Adding

    /// Adds an event; survives the death of the process, not a power cut.
    func add(_ event: String, at time: WallTime) throws(SystemError) {
        let line = QueuedEvent(time: time, json: event).line
        let deadline = Deadline.after(patience)
        var file = try openPending()
        while true {
            if try file.descriptor.tryLock(subject: file.path) {
                if file.isInPlace {
                    try add(line, to: file)
                    return added.add()
                }
                // Renamed before the lock was had: the sender may be done with it.
                file = try openPending()
                continue
            }
            guard !deadline.hasPassed else {
                throw SystemError(call: "fcntl", subject: file.path, errno: SystemError.inUse)
            }
            Thread.pause(.milliseconds(2))
        }
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
        guard let status = try directory.status(of: "pending"), status.size > 0 else { return nil }
        added.set(0)
        try Disk().rename("pending", in: directory, to: "sending", in: directory)
        guard let file = try directory.open("sending", forWriting: true) else { return nil }
        return try EventBatch(file, in: directory, left: left)
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
    private let left: Tally

    /// Begins at the first line; `left` gets the number of events that are not done.
    init(
        _ file: consuming Descriptor,
        in directory: Directory,
        left: Tally
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
