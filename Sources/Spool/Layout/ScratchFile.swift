// Content that no request can come back for, in a file without a name.
//
// Nothing of it is ever made durable, and it is gone when closed. Invariant: the file holds exactly
// the first `length` bytes appended.

import Posix

/// A nameless file of content.
///
/// Used by one thread.
package final class ScratchFile {
    /// Bytes written.
    package private(set) var length: Int64 = 0
    /// The open file, for an upstream that links or copies it.
    package var dataFile: Int32 { file.descriptor.number }

    private let spool: Spool
    private let file: OpenFile

    init(_ file: OpenFile, in spool: Spool) {
        self.spool = spool
        self.file = file
    }

    deinit { spool.room.giveBack(length, isNamed: false) }

    /// Appends bytes; `.full` below the reserve or when the disk is, `.overQuota` above the quota.
    package func append(_ bytes: RawSpan) throws(SpoolError) {
        let end = length + Int64(bytes.byteCount)
        try spool.room.take(Int64(bytes.byteCount), isNamed: false)
        // What could not be written; what was is given back with the file.
        defer { spool.room.giveBack(end - length, isNamed: false) }
        try spool.onDisk { () throws(SystemError) in
            try spool.disk.write(
                bytes,
                to: file.descriptor,
                at: &length,
                subject: file.subject
            )
        }
    }

    /// Reads content for the upstream.
    ///
    /// - Parameters:
    ///   - buffer: is filled from its start.
    ///   - position: where in the content to begin.
    /// - Returns: the bytes read; less than asked only at the end of the content.
    /// - Throws: `.disk` where they cannot be read.
    package func read(
        into buffer: UnsafeMutableRawBufferPointer,
        at position: Int64
    ) throws(SpoolError) -> Int {
        try spool.onDisk { () throws(SystemError) in
            try file.descriptor.read(into: buffer, at: position, subject: file.subject)
        }
    }

    /// Calls `body` with a path by which another process of this user can open the file.
    ///
    /// The path is good until `body` returns. Where the file system cannot give the file a name, it
    /// leads over this process's descriptor.
    package func withPath<R, E: Error>(_ body: (String) throws(E) -> R) throws(E) -> R {
        let name = TemporaryName.next()
        let directory = spool.layout.temporary
        do throws(SystemError) {
            try spool.disk.link(file.descriptor, as: name, in: directory)
        } catch {
            return try body("/proc/\(Directory.process)/fd/\(file.descriptor.number)")
        }
        // One that stays is removed with what is old there.
        defer { _ = try? spool.disk.unlink(name, in: directory) }
        return try body(directory.path(of: name))
    }
}

extension Spool {
    /// Makes a nameless file for content that no request can come back for; gone when closed, and at
    /// the death of the process.
    ///
    /// - Parameter expected: bytes that are to come, as far as known.
    /// - Returns: the file, empty.
    /// - Throws: `.full` or `.overQuota` where there is no room for them.
    package func scratch(expecting expected: Int64 = 0) throws(SpoolError) -> ScratchFile {
        try room.check(for: expected, makesFile: true)
        return try onDisk { () throws(SystemError) in
            let directory = layout.temporary
            if let nameless = try disk.createNameless(in: directory) {
                return ScratchFile(OpenFile(nameless, "scratch", in: directory), in: self)
            }
            let name = TemporaryName.next()
            let file = OpenFile(try disk.create(name, in: directory), name, in: directory)
            try disk.unlink(name, in: directory)
            return ScratchFile(file, in: self)
        }
    }
}
