// The digest of a file to upload (RFC 9530).

import Glibc
import SpoolgateCrypto
import SpoolgatePosix
import SpoolgateTextFormats

enum FileDigest {
    /// Returns the value of `Repr-Digest` for a file, with SHA-256.
    ///
    /// `isStopped` is called before each MiB is read; if it returns true, the result is nil.
    ///
    /// - Throws: `SystemError` if the file cannot be read.
    static func value(of path: FilePath, isStopped: () -> Bool) throws(SystemError) -> String? {
        let number = path.withPointer { open($0, O_RDONLY | O_CLOEXEC) }
        guard number >= 0 else { throw SystemError("open", on: path.shown) }
        let opened = Descriptor(owning: number)
        let running = RunningDigest(.sha256)
        var position: Int64 = 0
        while !isStopped() {
            let bytes = try opened.bytes(at: position, count: 1 << 20, subject: path.shown)
            if bytes.isEmpty { return "sha-256=:\(Base64.encode(running.finish())):" }
            running.update(bytes.span.bytes)
            position += Int64(bytes.count)
        }
        return nil
    }
}
