// Appends of unknown length, by which streams go: one request that stays open while the server reports what it has
// received (104 with Upload-Offset, draft-12 §4.1.1). Each report frees memory for more of the stream.
//
// The invariant: an open append never completes an upload, so whatever ends it, the rest follows by another append.

import HTTPTypes
import SpoolgateCurl
import SpoolgatePosix
import SpoolgateUploadProtocol

/// What a run knows of open appends to its server.
enum OpenAppends {
    /// No report has arrived yet.
    case unheard
    /// The same, and an append broke before the server had anything of it.
    case doubted
    /// The server reports what it has received.
    case reported
    /// They do not work, or reports come too seldom: the length of each append is sent.
    case unusable
}

/// One append of unknown length, as its content is given.
///
/// Used by the thread of its upload.
private final class OpenAppend {
    /// How long the append waits for the stream's next bytes before it ends.
    private static let streamPatience = Duration.seconds(1)
    /// How long it waits with a full window for a report before it ends.
    private static let reportPatience = Duration.seconds(3)
    /// After this time it ends if no report has arrived: a proxy may pass nothing on before the end.
    private static let silence = Duration.seconds(10)
    /// How long one call waits for the stream's next bytes.
    private static let look = Duration.milliseconds(20)

    /// Bytes that were given.
    private(set) var count: Int64 = 0
    /// Whether it ended because no report freed the full window.
    private(set) var hasStalled = false
    private let stream: StreamContent
    private let start: Int64
    private let most: Int64
    private let end = Deadline.after(silence)
    private var patience: Deadline?

    /// Gives bytes of `stream` from `start` on, at most `most`.
    init(of stream: StreamContent, from start: Int64, atMost most: Int64) {
        (self.stream, self.start, self.most) = (stream, start, most)
    }

    /// Gives the next bytes.
    ///
    /// - Parameters:
    ///   - buffer: where they go.
    ///   - isReported: whether the server reports what it has received.
    /// - Returns: what the request does next.
    /// - Throws: what `StreamContent.take` throws.
    func give(
        into buffer: UnsafeMutableRawBufferPointer,
        isReported: Bool
    ) throws(ContentFault) -> ClientContent.Step {
        // Without reports half of the window is on its way while the other half fills.
        let bound = isReported ? most : min(most, stream.capacity / 2)
        guard count < bound, isReported || !end.hasPassed else { return .bytes(0) }
        let room = buffer.prefix(Int(min(bound - count, Int64(buffer.count))))
        let taken = try stream.take(
            into: UnsafeMutableRawBufferPointer(rebasing: room),
            at: start + count,
            within: Self.look
        )
        count += Int64(taken.count)
        guard taken.count == 0, !taken.isEnded else {
            patience = nil
            return .bytes(taken.count)
        }
        let wait = patience ?? .after(taken.isFull ? Self.reportPatience : Self.streamPatience)
        patience = wait
        guard wait.hasPassed else { return .later }
        hasStalled = taken.isFull
        return .bytes(0)
    }
}

extension UploadRun {
    /// Appends a stream from `offset` on by one request of unknown length.
    ///
    /// - Returns: whether it did, and the final response if that came. It does not if the end of the stream is known,
    ///   and if the server wants the length of each append.
    func appendOpenly(
        to resource: URLText,
        at offset: Int64
    ) throws(TransferError) -> (isDone: Bool, answer: Transfer.Answer?) {
        guard let append = try beginOpenly(at: offset) else { return (false, nil) }
        let purpose = "the append at \(offset) by PATCH \(resource.text)"
        var fields = appendFields(Portion(count: 0, isLast: false), at: offset)
        fields.askForIncrementalForwarding()
        let result = exchange.send(
            .patch,
            resource,
            fields,
            content: ClientContent(length: nil) { [self] buffer, transfer in
                // The server may answer early. Then the request ends in good order.
                guard transfer.head == nil else { return .bytes(0) }
                do throws(ContentFault) {
                    let step = try append.give(into: buffer, isReported: openAppends == .reported)
                    tellSent(offset + append.count)
                    return step
                } catch {
                    contentFault = error
                    return .reset
                }
            },
            heard: { [self] in
                hear($0, from: resource, creates: false)
                if received > offset, openAppends != .unusable { openAppends = .reported }
            }
        )
        if append.hasStalled { openAppends = .unusable }
        if result.head == nil, contentFault == nil, received == offset {
            openAppends =
                switch openAppends {
                case .unheard: .doubted
                case .doubted, .unusable: .unusable
                case .reported: .reported
                }
        }
        guard let (answer, read) = try answered(result, purpose) else { return (true, nil) }
        limit(by: read)
        let sent = Portion(count: append.count, isLast: false)
        let verdict = Verdict(of: read, to: .append(isComplete: false), by: options.method)
        guard !isRefusedOpenly(sent, from: offset, verdict, read) else {
            // The server may have some of it.
            self.offset = nil
            return (true, nil)
        }
        return (true, try conclude(sent, from: offset, answer, read, verdict, purpose))
    }

    /// Begins an open append at `offset` once the stream has bytes for it; nil: there is none.
    private func beginOpenly(at offset: Int64) throws(TransferError) -> OpenAppend? {
        guard let stream = content as? StreamContent, openAppends != .unusable else { return nil }
        let half = stream.capacity / 2
        // A length that was told is reached by the append that completes the upload, and by no other.
        let most = min(maxAppend ?? .max, stream.length.map { $0 - offset - 1 } ?? .max)
        guard most > half else { return nil }
        do throws(ContentFault) {
            stream.release(upTo: offset)
            let least = max(1, min(minAppend, half))
            let goesOn = try stream.goesOn(from: offset, by: least) { control.isStopped }
            return goesOn ? OpenAppend(of: stream, from: offset, atMost: most) : nil
        } catch {
            throw self.error(error, in: name)
        }
    }

    /// Whether a server, or a proxy on the way, does not take an open append as it is; the next one has another form.
    private func isRefusedOpenly(
        _ sent: Portion,
        from start: Int64,
        _ verdict: Verdict,
        _ answer: UploadAnswer
    ) -> Bool {
        switch verdict {
        case .tooLarge where sent.count > 1: maxAppend = smaller(than: sent.count)
        // It wants a length (RFC 9110 §15.5.12), it does not know the coding (RFC 9112 §6.1), or the proxy's limit is
        // below what one request has sent.
        case .refused where [400, 411, 413, 501].contains(answer.status): openAppends = .unusable
        // Content without a length counted for nothing.
        case .acknowledged(let told) where told == start: openAppends = .unusable
        case .unconfirmed: openAppends = .unusable
        default: return false
        }
        return true
    }
}
