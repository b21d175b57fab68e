// The SHA-256 of content before it is sent.

import SpoolgateCrypto
import SpoolgatePosix

extension UpstreamContent {
    /// Computes the SHA-256 of the content (32 bytes) in constant memory, and calls `onProgress` repeatedly.
    ///
    /// - Throws: the errors of reading the content, or `ContentLengthMismatch`.
    func digest(_ onProgress: () -> Void) throws -> [UInt8] {
        let digest = RunningDigest(.sha256)
        guard let source = ContentSource(self) else { return digest.finish() }
        let size = Int(min(1 << 20, source.length ?? 1 << 20))
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: size, alignment: 4096)
        defer { buffer.deallocate() }
        while true {
            let count = try source.read(into: buffer)
            guard count > 0 else { return digest.finish() }
            digest.update(UnsafeRawBufferPointer(rebasing: buffer[..<count]))
            onProgress()
        }
    }
}
