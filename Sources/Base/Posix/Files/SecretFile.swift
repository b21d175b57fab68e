// Reads secret files.

import Glibc

/// Small, regular files that other users can neither read nor change.
package enum SecretFile {
    /// Reads a whole file of at most `limit` bytes; follows a symbolic link.
    ///
    /// - Throws: `SystemError` if the file cannot be read; EFBIG if the file is longer; EACCES on the call `stat` if
    ///   the file's permissions let others read, or the group change, the file.
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

extension SystemError {
    /// The reason why `SecretFile` did not read a file; `name` is the file's content, such as `the key`.
    package func reason(ofSecret name: String) -> String {
        call == "stat"
            ? "\(subject) is readable by others, writable by its group, or not a regular file; set its mode to "
                + "0600 or 0640"
            : "cannot read \(name): \(self)"
    }
}
