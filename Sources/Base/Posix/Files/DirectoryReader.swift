// Reads a large directory without much memory.

import Glibc

/// Reads the names in one directory.
///
/// Only one thread may use the reader.
///
/// A name added or removed during the reading may or may not appear (POSIX, readdir).
package final class DirectoryReader {
    private let stream: OpaquePointer
    private let path: String

    init(_ directory: borrowing Directory) throws(SystemError) {
        path = directory.path
        // The directory is opened again, because threads share the read position of the first open.
        let flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW
        let number = openat(directory.descriptor.number, ".", flags)
        try SystemError.check(number, "openat", on: path)
        guard let stream = fdopendir(number) else {
            let error = SystemError("fdopendir", on: path)
            _ = Descriptor(owning: number)
            throw error
        }
        self.stream = stream
    }

    deinit { closedir(stream) }

    /// Returns the next name, skipping `.` and `..`, or nil after the last name.
    ///
    /// - Throws: `SystemError` if the directory cannot be read.
    package func next() throws(SystemError) -> String? {
        while true {
            errno = 0
            guard let entry = readdir(stream) else {
                guard errno == 0 else { throw SystemError("readdir", on: path) }
                return nil
            }
            let name = withUnsafeBytes(of: &entry.pointee.d_name) { bytes in
                String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
            }
            if name != "." && name != ".." { return name }
        }
    }
}
