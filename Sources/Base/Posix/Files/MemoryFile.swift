// A file in memory: what a library that reads descriptors is given to read.

import CSpoolgateLinux
import Glibc

/// An owned file without a name whose bytes are in memory only.
package struct MemoryFile: ~Copyable, Sendable {
    private let descriptor: Descriptor

    /// Makes an empty one.
    /// - Throws: `SystemError` when the process or the system has no room for it (EMFILE, ENFILE, ENOMEM).
    package init(named name: String) throws(SystemError) {
        let number = try SystemError.check(spoolgate_memory_file(name), "memfd_create", on: name)
        // What is written goes behind what is there, wherever a reader has left off; on a file in memory that
        // cannot fail.
        _ = fcntl(number, F_SETFL, O_APPEND)
        descriptor = Descriptor(owning: number)
    }

    /// Takes one back that `release` gave away.
    package init(owning number: Int32) { descriptor = Descriptor(owning: number) }

    /// Gives up ownership: the caller must close the number, or take the file back.
    package consuming func release() -> Int32 { descriptor.release() }

    /// Gives an empty file these bytes, to be read from the first one on.
    /// - Throws: `SystemError` when there is no memory for them.
    package func hold(_ bytes: [UInt8]) throws(SystemError) {
        guard write(descriptor.number, bytes, bytes.count) == bytes.count,
            lseek(descriptor.number, 0, SEEK_SET) == 0
        else { throw SystemError("write", on: "\(bytes.count) bytes in memory") }
    }

    /// Empties it, and frees its memory.
    package func clear() throws(SystemError) {
        try SystemError.check(ftruncate(descriptor.number, 0), "ftruncate", on: "a file in memory")
    }
}
