// The destination of a download: writes content in order, and determines the offset to resume at.
//
// The invariant: a file gets its name only when it is complete and durable.

import SpoolgatePosix

/// Used by the thread of the download.
final class DownloadPlace {
    private enum Kind {
        case file(PartFile)
        case direct(DirectFile)
        case pieces(@Sendable ([UInt8]) throws -> Void)
        case body(DownloadChannel)
    }

    private let kind: Kind
    private let isStopped: () -> Bool
    /// The number of bytes that the destination has, which is also the offset of the next byte.
    private(set) var offset: Int64
    /// Why the destination lacks bytes that the token counts as received; nil if no bytes are missing.
    let loss: String?
    /// The digests of bytes that cannot be read back; nil if no digests are needed.
    private var running: RunningDigests?

    /// Opens the destination, to continue at the token's offset if possible.
    ///
    /// Calls `isStopped` during waits; it returns true if the download should end.
    ///
    /// - Throws: a fault if the destination cannot be written to. Its kind is `.later` if another download is writing
    ///   to the file.
    init(
        _ destination: Download.Destination,
        _ channel: DownloadChannel,
        after token: Download.Token?,
        isStopped: @escaping () -> Bool
    ) throws(ContentFault) {
        self.isStopped = isStopped
        let before = token?.offset ?? 0
        switch destination.kind {
        case .pieces(let take): (kind, offset, loss) = (.pieces(take), before, nil)
        case .body:
            channel.begin(at: before)
            (kind, offset, loss) = (.body(channel), before, nil)
        case .file(let path):
            if DirectFile.isOne(path) {
                kind = .direct(try DirectFile(path, isStopped: isStopped))
                (offset, loss) = (before, nil)
                return
            }
            guard FileKind(of: path) != .directory else {
                throw ContentFault(
                    kind: .invalid,
                    reason: "\(path) is a directory; name a file in it"
                )
            }
            let part = try PartFile(of: path)
            kind = .file(part)
            loss = try token.flatMap { token throws(ContentFault) in
                try Self.loss(of: token, in: part, path)
            }
            offset = loss == nil ? before : 0
        }
    }

    /// Returns why the file does not match the token; nil if it does.
    private static func loss(
        of token: Download.Token,
        in part: PartFile,
        _ path: String
    ) throws(ContentFault) -> String? {
        let size = try part.size()
        if size < token.offset {
            return "\(path).part has \(size) bytes, but \(token.offset) were received"
        }
        guard let tail = token.tail, try part.tail(before: token.offset) != tail else { return nil }
        return "the content of \(path).part is not the content received"
    }

    /// Whether received bytes are passed on and cannot be read back.
    var isHandedOver: Bool { if case .file = kind { false } else { true } }

    /// The offset to resume at; bytes of a `.body` count only once its reader has received them.
    var offsetTaken: Int64 {
        if case .body(let channel) = kind { channel.given } else { offset }
    }

    /// Returns a digest of a file's last bytes; nil for other destinations.
    func tail() throws(ContentFault) -> String? {
        guard case .file(let part) = kind else { return nil }
        return try part.tail(before: offset)
    }

    /// Discards the received bytes; returns false if they were passed on.
    func restart() -> Bool {
        if isHandedOver, offset > 0 { return false }
        offset = 0
        return true
    }

    func note(_ response: Transfer.Response) {
        if case .body(let channel) = kind { channel.note(response) }
    }

    func take(_ bytes: UnsafeRawBufferPointer) throws(ContentFault) {
        switch kind {
        case .pieces(let take):
            do { try take(Array(bytes)) } catch {
                throw ContentFault(
                    kind: .unreadable,
                    reason: "the destination refused the content: \(error)"
                )
            }
        case .body(let channel):
            guard channel.add(Array(bytes), isStopped: isStopped) else {
                throw ContentFault(kind: .paused, reason: "its reader stopped reading")
            }
        case .direct(let file): try file.write(bytes)
        case .file(let part): try part.write(bytes, at: offset)
        }
        running?.update(bytes)
        offset += Int64(bytes.count)
    }

    /// Starts the digests if the bytes cannot be read back.
    ///
    /// Has no effect after the first byte.
    func willCompare(with digest: DownloadDigest) {
        if isHandedOver, offset == 0 { running = digest.running() }
    }

    /// Returns whether the content matches `digest`; nil if the download was stopped first.
    func isRight(_ digest: DownloadDigest) throws(ContentFault) -> Bool? {
        guard case .file(let part) = kind else {
            return running.map { digest.isRight($0) } ?? false
        }
        let computed = digest.running()
        let isWhole = try part.read(from: 0, to: offset) { bytes in
            computed.update(bytes)
            return !isStopped()
        }
        return isWhole ? digest.isRight(computed) : nil
    }

    func discard() { if case .file(let part) = kind { part.discard() } }

    func sync() throws(ContentFault) { if case .file(let part) = kind { try part.sync() } }

    /// Makes a complete file durable and gives it its final name.
    func finish() throws(ContentFault) {
        switch kind {
        case .file(let part): try part.finish(offset)
        case .direct(let file): try file.finish()
        case .pieces, .body: break
        }
    }
}
