// The digest of a file that is to be uploaded.

import Glibc
import SpoolgateCrypto
import SpoolgatePosix
import SpoolgateTextFormats

/// The value of `Repr-Digest` (RFC 9530).
enum FileDigest {
    /// Reads a file to its end.
    ///
    /// - Parameters:
    ///   - path: the file.
    ///   - isStopped: asked for each MiB; true ends it.
    /// - Returns: the field's value, by SHA-256; nil: it was stopped.
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
