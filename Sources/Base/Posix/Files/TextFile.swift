// Reads text files.

import Glibc

/// Small text files.
package enum TextFile {
    /// Reads a whole file of at most `limit` bytes as UTF-8; invalid bytes become U+FFFD.
    ///
    /// - Throws: `SystemError` with the failed call and the path; EFBIG if the file is longer.
    package static func read(_ path: String, limit: Int) throws(SystemError) -> String {
        let number = open(path, O_RDONLY | O_CLOEXEC)
        let file = Descriptor(owning: try SystemError.check(number, "open", on: path))
        var bytes: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 16 * 1024)
        while true {
            let count = Glibc.read(file.number, &chunk, chunk.count)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw SystemError("read", on: path) }
            if count == 0 { return String(decoding: bytes, as: UTF8.self) }
            bytes.append(contentsOf: chunk[..<count])
            guard bytes.count <= limit else {
                throw SystemError(call: "read", subject: path, errno: EFBIG)
            }
        }
    }
}
