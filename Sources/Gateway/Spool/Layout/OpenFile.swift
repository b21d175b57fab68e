// An open file of the spool, with its name for messages.
//
// The last reference closes the file. Invariant: the name is the path at the opening, and no later call uses the name.

import SpoolgatePosix

final class OpenFile: Sendable {
    let descriptor: Descriptor
    private let directory: Directory
    private let name: String

    /// Takes ownership of a descriptor opened with the path `name` below `directory`.
    init(_ descriptor: consuming Descriptor, _ name: String, in directory: Directory) {
        self.descriptor = descriptor
        self.name = name
        self.directory = directory
    }

    /// Opens a file, or returns nil if the file is missing.
    static func open(
        _ name: String,
        in directory: Directory,
        forWriting: Bool = true
    ) throws(SystemError) -> OpenFile? {
        guard let descriptor = try directory.open(name, forWriting: forWriting) else { return nil }
        return OpenFile(descriptor, name, in: directory)
    }

    /// The file's path, for messages.
    var subject: String { directory.path(of: name) }

    func status() throws(SystemError) -> FileStatus { try descriptor.status(subject: subject) }

    /// Locks the file, or returns false if another process holds the lock.
    func tryLock() throws(SystemError) -> Bool { try descriptor.tryLock(subject: subject) }

    /// Returns fewer than `count` bytes only at the end of the file.
    func bytes(at position: Int64, count: Int) throws(SystemError) -> [UInt8] {
        try descriptor.bytes(at: position, count: count, subject: subject)
    }
}

extension Disk {
    func write(_ bytes: [UInt8], to file: OpenFile, at position: Int64) throws(SystemError) {
        var position = position
        try write(
            bytes.span.bytes,
            to: file.descriptor,
            at: &position,
            subject: file.subject
        )
    }

    /// Makes a file's content and size durable.
    func sync(_ file: OpenFile) throws(SystemError) {
        try sync(file.descriptor, subject: file.subject)
    }

    /// Rewrites a part of a file with the same bytes, so that the next sync writes it to the disk again.
    func writeAgain(_ part: Range<Int64>, of file: OpenFile) throws(SystemError) {
        let bytes = try file.bytes(at: part.lowerBound, count: Int(clamping: part.count))
        try write(bytes, to: file, at: part.lowerBound)
    }

    func truncate(_ file: OpenFile, to size: Int64) throws(SystemError) {
        try truncate(file.descriptor, to: size, subject: file.subject)
    }
}
