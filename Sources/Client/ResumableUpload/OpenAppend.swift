// Appends of unknown length, which send streams. One request stays open while the server reports received content (104
// with `Upload-Offset`, draft-12 §4.1.1). Each report frees memory.
//
// The invariant: an open append never completes an upload, so another append can always send the rest.

import HTTPTypes
import SpoolgateCurl
import SpoolgatePosix
import SpoolgateUploadProtocol

/// Whether appends of unknown length ("open appends") work with a server.
enum OpenAppends {
    /// No report has arrived yet.
    case unknown
    /// An append without reports failed before the server acknowledged any content.
    case uncertain
    /// The server reports received content.
    case reported
    /// Open appends fail, or the server reports received content too rarely, so each append states its length.
    case unusable
}

/// Used by the thread of the upload.
private final class OpenAppend {
    /// The append ends after this time without new bytes from the stream.
    private static let streamPatience = Duration.seconds(1)
    /// The append ends after this time with a full window and without a report.
    private static let reportPatience = Duration.seconds(3)
    /// The append ends after this time without a report, because a proxy may buffer the request until then.
    private static let silence = Duration.seconds(10)
    /// The maximum time that one call of `give` waits for bytes of the stream.
    private static let look = Duration.milliseconds(20)

    private(set) var count: Int64 = 0
    /// Whether the append ended because the window stayed full without a report.
    private(set) var hasStalled = false
    private let stream: StreamContent
    private let start: Int64
    private let maximum: Int64
    private let end = Deadline.after(silence)
    private var patience: Deadline?

    init(of stream: StreamContent, from start: Int64, upTo maximum: Int64) {
        (self.stream, self.start, self.maximum) = (stream, start, maximum)
    }

    /// Provides the next bytes.
    ///
    /// - Returns: the number of bytes provided, the end of the content, or that the request must wait.
    /// - Throws: the errors of `StreamContent.take`.
    func give(
        into buffer: UnsafeMutableRawBufferPointer,
        isReported: Bool
    ) throws(ContentFault) -> ClientContent.Step {
        // Without reports, half of the window is sent while the other half fills.
        let bound = isReported ? maximum : min(maximum, stream.capacity / 2)
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
    /// Sends an append of unknown length, unless the end of the stream is known or the server requires lengths.
    ///
    /// - Returns: whether the append was attempted, and the final response if it has arrived.
    func appendOpenly(
        to resource: URLText,
        at offset: Int64
    ) throws(TransferError) -> (isDone: Bool, response: Transfer.Response?) {
        guard let append = try beginOpenly(at: offset) else { return (false, nil) }
        let purpose = "the append at \(offset) by PATCH \(resource.text)"
        var fields = appendFields(Portion(count: 0, isLast: false), at: offset)
        fields.requestIncrementalForwarding()
        let result = exchange.send(
            .patch,
            resource,
            fields,
            content: ClientContent(length: nil) { [self] buffer, transfer in
                // If the server responds early, the request still ends regularly.
                guard transfer.head == nil else { return .bytes(0) }
                do throws(ContentFault) {
                    let step = try append.give(into: buffer, isReported: openAppends == .reported)
                    reportSent(offset + append.count)
                    return step
                } catch {
                    contentFault = error
                    return .reset
                }
            },
            received: { [self] in
                receive($0, from: resource, creates: false)
                if received > offset, openAppends != .unusable { openAppends = .reported }
            }
        )
        if append.hasStalled { openAppends = .unusable }
        if result.head == nil, contentFault == nil, received == offset {
            openAppends =
                switch openAppends {
                case .unknown: .uncertain
                case .uncertain, .unusable: .unusable
                case .reported: .reported
                }
        }
        guard let (response, read) = try responded(result, purpose) else { return (true, nil) }
        limit(by: read)
        let sent = Portion(count: append.count, isLast: false)
        let decision = Decision(of: read, to: .append(isComplete: false), by: options.method)
        guard !isRefusedOpenly(sent, from: offset, decision, read) else {
            // The server may have received some of the content.
            self.offset = nil
            return (true, nil)
        }
        return (true, try conclude(sent, from: offset, response, read, decision, purpose))
    }

    /// Waits for bytes of the stream; returns nil if no open append is possible.
    private func beginOpenly(at offset: Int64) throws(TransferError) -> OpenAppend? {
        guard let stream = content as? StreamContent, openAppends != .unusable else { return nil }
        let half = stream.capacity / 2
        // Only the append that completes the upload may reach a declared length.
        let maximum = min(maxAppend ?? .max, stream.length.map { $0 - offset - 1 } ?? .max)
        guard maximum > half else { return nil }
        do throws(ContentFault) {
            stream.release(upTo: offset)
            let least = max(1, min(minAppend, half))
            let goesOn = try stream.goesOn(from: offset, by: least) { control.isStopped }
            return goesOn ? OpenAppend(of: stream, from: offset, upTo: maximum) : nil
        } catch {
            throw self.error(error, in: name)
        }
    }

    /// Returns whether the server refused this form of append.
    ///
    /// If so, selects another form for later appends.
    private func isRefusedOpenly(
        _ sent: Portion,
        from start: Int64,
        _ decision: Decision,
        _ response: ServerResponse
    ) -> Bool {
        switch decision {
        case .tooLarge where sent.count > 1: maxAppend = smaller(than: sent.count)
        // The server requires a length (RFC 9110 §15.5.12), does not support the coding (RFC 9112 §6.1), or a proxy's
        // limit is below the content of this request.
        case .refused where [400, 411, 413, 501].contains(response.status): openAppends = .unusable
        // The server ignored content without a length.
        case .acknowledged(let stated) where stated == start: openAppends = .unusable
        case .unconfirmed: openAppends = .unusable
        default: return false
        }
        return true
    }
}
