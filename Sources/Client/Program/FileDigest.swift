// The digest of a file to upload, as a value of `Repr-Digest` (RFC 9530).

import Glibc
import SpoolgateCrypto
import SpoolgatePosix
import SpoolgateTextFormats

enum FileDigest {
    /// Reads a file to its end and computes its digest.
    ///
    /// - Parameters:
    ///   - path: the file.
    ///   - isStopped: called before each MiB is read; returns true to stop.
    /// - Returns: the value of `Repr-Digest`, with SHA-256, or nil if `isStopped` returned true.
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
