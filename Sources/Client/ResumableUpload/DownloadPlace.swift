// Where the bytes of a download go, in order, and from which offset they can go on.
//
// The invariant: a file has its name only when it is whole and durable.

import SpoolgatePosix

/// The destination of one run.
///
/// Used by the thread of its download.
final class DownloadPlace {
    private enum Kind {
        case file(PartFile)
        case direct(DirectFile)
        case pieces(@Sendable ([UInt8]) throws -> Void)
        case body(DownloadChannel)
    }

    private let kind: Kind
    private let isStopped: () -> Bool
    /// Bytes that it has.
    private(set) var offset: Int64
    /// Why it has not what a token says that came; nil: it has.
    let loss: String?
    /// Of what cannot be read again; nil: not wanted.
    private var running: RunningDigests?

    /// Opens it, to go on where `token` says if it can.
    ///
    /// - Parameters:
    ///   - destination: where to.
    ///   - channel: the download's, for a body.
    ///   - token: what came before; nil: nothing.
    ///   - isStopped: whether the download is to end.
    /// - Throws: why it cannot be written to; of kind `.later` if another download writes to the file.
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

    /// Why what is in the file is not what the token is of; nil: nothing tells that.
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

    /// Whether what it takes is handed over, and cannot be had back.
    var isHandedOver: Bool { if case .file = kind { false } else { true } }

    /// What the next run can go on from: what it has, without what its reader has not taken of a body.
    var offsetTaken: Int64 {
        if case .body(let channel) = kind { channel.given } else { offset }
    }

    /// What the last bytes of a file are recognised by.
    func tail() throws(ContentFault) -> String? {
        guard case .file(let part) = kind else { return nil }
        return try part.tail(before: offset)
    }

    /// Forgets what it has; false if it was handed over already.
    func restart() -> Bool {
        if isHandedOver, offset > 0 { return false }
        offset = 0
        return true
    }

    /// Says what the content is of that comes from now on.
    func note(_ answer: Transfer.Answer) {
        if case .body(let channel) = kind { channel.note(answer) }
    }

    /// Takes the next bytes.
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

    /// Says before the first byte what all of them are compared with.
    func willCompare(with digest: DownloadDigest) {
        if isHandedOver, offset == 0 { running = digest.running() }
    }

    /// Whether everything that was taken is what the digest says; nil if it was stopped before it knew.
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

    /// Removes what it has of a file.
    func discard() { if case .file(let part) = kind { part.discard() } }

    /// Makes what it has durable.
    func sync() throws(ContentFault) { if case .file(let part) = kind { try part.sync() } }

    /// Gives a whole file its name.
    func finish() throws(ContentFault) {
        switch kind {
        case .file(let part): try part.finish(offset)
        case .direct(let file): try file.finish()
        case .pieces, .body: break
        }
    }
}
