// A file in memory, for libraries that read from descriptors.

import CSpoolgateLinux
import Glibc

/// An owned, unnamed file whose bytes are only in memory.
package struct MemoryFile: ~Copyable, Sendable {
    private let descriptor: Descriptor

    /// Creates an empty file; throws EMFILE, ENFILE or ENOMEM if descriptors or memory are exhausted.
    package init(named name: String) throws(SystemError) {
        let number = try SystemError.check(spoolgate_memory_file(name), "memfd_create", on: name)
        // Makes writes append, regardless of the read position. For a file in memory, this call cannot fail.
        _ = fcntl(number, F_SETFL, O_APPEND)
        descriptor = Descriptor(owning: number)
    }

    /// Takes ownership of a number from `release`.
    package init(owning number: Int32) { descriptor = Descriptor(owning: number) }

    /// Gives up ownership; the caller must close the number or pass it to `init(owning:)`.
    package consuming func release() -> Int32 { descriptor.release() }

    /// Stores bytes, to be read from the start.
    ///
    /// The file must be empty.
    ///
    /// - Throws: `SystemError` if memory is exhausted.
    package func hold(_ bytes: [UInt8]) throws(SystemError) {
        guard write(descriptor.number, bytes, bytes.count) == bytes.count,
            lseek(descriptor.number, 0, SEEK_SET) == 0
        else { throw SystemError("write", on: "\(bytes.count) bytes in memory") }
    }

    /// Empties the file and frees its memory.
    package func clear() throws(SystemError) {
        try SystemError.check(ftruncate(descriptor.number, 0), "ftruncate", on: "a file in memory")
    }
}
