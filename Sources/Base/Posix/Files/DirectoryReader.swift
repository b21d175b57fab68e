// The names in a directory, one after the other, so that a long one takes no memory.
//
// The invariant: reading moves no place in the directory that others share.

import Glibc

/// The names in one directory.
///
/// One thread. What is added or removed meanwhile may be among them or not (POSIX, readdir).
package final class DirectoryReader {
    private let stream: OpaquePointer
    private let path: String

    /// Begins with the first name.
    ///
    /// - Throws: where the directory cannot be opened.
    init(_ directory: borrowing Directory) throws(SystemError) {
        path = directory.path
        // Opened anew, because reading moves a place in the open directory that threads would share.
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

    /// The next name, without `.` and `..`; nil after the last one.
    ///
    /// - Throws: where the directory cannot be read.
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
