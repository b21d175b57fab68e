// Reads a small secret file, which must be a regular file that other users can neither read nor change.

import Glibc

/// Small secret files.
package enum SecretFile {
    /// Reads a whole file.
    ///
    /// - Parameters:
    ///   - path: the file; a symbolic link is followed.
    ///   - limit: the maximum size in bytes; a longer file is an error (`EFBIG`).
    /// - Returns: its bytes.
    /// - Throws: `SystemError` if it cannot be read; EACCES on the call `stat` if its permissions let others read it or
    ///   its group change it.
    package static func read(_ path: String, limit: Int) throws(SystemError) -> [UInt8] {
        let number = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
        let file = Descriptor(owning: try SystemError.check(number, "open", on: path))
        let status = try file.status(subject: path)
        guard status.isRegular, status.permissions & 0o027 == 0 else {
            throw SystemError(call: "stat", subject: path, errno: EACCES)
        }
        let bytes = try file.bytes(at: 0, count: limit + 1, subject: path)
        guard bytes.count <= limit else {
            throw SystemError(call: "read", subject: path, errno: EFBIG)
        }
        return bytes
    }
}
