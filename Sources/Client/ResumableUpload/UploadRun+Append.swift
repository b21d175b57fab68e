// Sends the content of an upload, portion by portion, and reports progress.
//
// The invariant: before the last byte is sent, the token says that the server may have accepted the upload.

import HTTPTypes
import SpoolgateCurl
import SpoolgatePosix
import SpoolgateUploadProtocol

extension UploadRun {
    func append(to resource: URLText, at offset: Int64) throws(TransferError) -> Transfer.Response?
    {
        let open = try appendOpenly(to: resource, at: offset)
        guard !open.isDone else { return open.response }
        let portion = try appendable(from: offset)
        let purpose = "the append at \(offset) by PATCH \(resource.text)"
        let fields = appendFields(portion, at: offset)
        let result = send(portion, from: offset, by: .patch, to: resource, fields)
        guard let (response, read) = try responded(result, purpose) else { return nil }
        limit(by: read)
        let step = Step.append(isComplete: portion.isLast)
        let decision = Decision(of: read, to: step, by: options.method)
        return try conclude(portion, from: offset, response, read, decision, purpose)
    }

    /// Returns the response to an append if it is final.
    func conclude(
        _ portion: Portion,
        from offset: Int64,
        _ response: Transfer.Response,
        _ read: ServerResponse,
        _ decision: Decision,
        _ purpose: String
    ) throws(TransferError) -> Transfer.Response? {
        let end = offset + portion.count
        switch decision {
        // A success at an offset before `end` is not final: content is missing.
        case .final
        where read.isComplete == nil && response.status.code < 300 && read.offset ?? end < end,
            .later:
            self.offset = nil
            try wait(purpose, response, read)
        case .final: return response
        case .unconfirmed:
            unconfirmed = (response, offset, end)
            self.offset = nil
        case .redirected:
            // The application has accepted the upload; there is no more to resume.
            if read.isComplete == true { token = nil }
            throw redirected(response, from: resource ?? target, purpose)
        case .unsupported:
            throw error(
                .unsupported,
                "\(purpose): the server reports a complete upload, but only \(end) bytes of it were "
                    + "sent; check the server",
                response
            )
        case .acknowledged(let stated):
            acknowledge(stated, upTo: end, from: offset)
        case .conflict(let stated) where !isFinished:
            // If the offset is unchanged or missing, retrieve the offset, but not at once.
            self.offset = nil
            if stated == nil || stated == offset { try wait(purpose, response, read) }
        case .gone where !isFinished:
            return try goneAnew(response, read, purpose)
        case .tooLarge where read.maxAppend == nil:
            // The response is from a proxy that does not name its limit.
            guard portion.count > AppendLimit.least else { throw refusal(response, purpose) }
            self.offset = nil
            maxAppend = appendLimit.lower(below: portion.count)
        case .tooLarge where portion.count > 1:
            maxAppend = smaller(than: portion.count)
        default:
            // The server had reported the upload as complete, but no longer has the response. A server that requires
            // credentials may still have the response.
            guard isFinished, portion.count == 0, ![401, 403, 407].contains(read.status)
            else { throw refusal(response, purpose) }
            return Transfer.Response(status: .noContent, isLost: true)
        }
        return nil
    }

    /// Returns the next portion, of the server's minimum size if the body is long enough.
    private func appendable(from offset: Int64) throws(TransferError) -> Portion {
        while true {
            let portion = try portion(from: offset)
            let least = min(minAppend, Int64(options.window) / 2, maxAppend ?? .max)
            if portion.isLast || portion.count >= least { return portion }
            control.wait(.milliseconds(200))
        }
    }

    func appendFields(_ portion: Portion, at offset: Int64) -> HTTPFields {
        var fields = options.fields.withoutRepresentation
        version.name(in: &fields)
        version.mark(portion.isLast, in: &fields)
        version.markAppend(at: offset, in: &fields)
        if portion.isLast, token?.length == nil {
            fields[.uploadLength] = String(offset + portion.count)
        }
        return fields
    }

    /// Sends a portion.
    ///
    /// Without an upload resource, the request creates one.
    func send(
        _ portion: Portion,
        from offset: Int64,
        by method: HTTPRequest.Method,
        to url: URLText,
        _ fields: HTTPFields
    ) -> ExchangeResult {
        let creates = resource == nil
        return exchange.send(
            method,
            url,
            fields,
            content: give(portion, from: offset),
            received: { [self] in receive($0, from: url, creates: creates) }
        )
    }

    func acknowledge(_ stated: Int64?, upTo end: Int64, from start: Int64) {
        let present = stated ?? end
        offset = (start...end).contains(present) ? present : nil
        if let offset { progressed(to: offset) }
    }

    /// Returns the next portion, within `maximum` and the limit of an append.
    func portion(
        from offset: Int64,
        upTo maximum: Int64 = .max
    ) throws(TransferError) -> Portion {
        try portion(from: offset, limit: min(maxAppend ?? .max, maximum))
    }

    func portion(from offset: Int64, limit: Int64?) throws(TransferError) -> Portion {
        do throws(ContentFault) {
            content.release(upTo: offset)
            let portion = try content.portion(from: offset, limit: limit) {
                control.isStopped
            }
            if let portion { return portion }
        } catch {
            throw self.error(error, in: name)
        }
        try checkWish()
        throw error(.paused, "\(name) was stopped")
    }

    /// The content of a request; nil if the portion is empty.
    func give(_ portion: Portion, from offset: Int64) -> ClientContent? {
        guard portion.count > 0 else {
            if portion.isLast { lastByteLeaves() }
            return nil
        }
        var given: Int64 = 0
        return ClientContent(length: portion.count) { [self] buffer, _ in
            let count = Int(min(Int64(buffer.count), portion.count - given))
            // libcurl asks once more at the end.
            guard count > 0 else { return .bytes(0) }
            if portion.isLast, given + Int64(count) == portion.count {
                lastByteLeaves()
                // The owner asks the run to end if the owner could not store the token.
                if control.isStopped { return .reset }
            }
            do throws(ContentFault) {
                try content.read(into: .init(rebasing: buffer[..<count]), at: offset + given)
            } catch {
                contentFault = error
                return .reset
            }
            given += Int64(count)
            reportSent(offset + given)
            return .bytes(count)
        }
    }

    /// Records that the server may have accepted the upload.
    private func lastByteLeaves() {
        guard var token, !token.mayBeComplete else { return }
        token.mayBeComplete = true
        token.length = content.length
        setToken(token)
    }

    func progressed(to offset: Int64) {
        guard offset > received else { return }
        received = offset
        content.release(upTo: offset)
        patience.progressed()
        reportProgress(sent: offset)
    }

    /// Reports at intervals that the bytes before `offset` were sent.
    func reportSent(_ offset: Int64) {
        if nextProgress.hasPassed { reportProgress(sent: offset) }
    }

    /// Reports as the last event that the server has all `length` bytes.
    ///
    /// The length of a stream may become known, and a token be reported, only after the last byte is acknowledged.
    func reportWhole(_ length: Int64) {
        progressed(to: length)
        let whole = Transfer.Progress(received: length, sent: length, total: length)
        if lastEvent != .progress(whole) { report(.progress(whole)) }
    }

    private func reportProgress(sent: Int64) {
        nextProgress = .after(.milliseconds(100))
        report(
            .progress(
                Transfer.Progress(
                    received: received,
                    sent: max(sent, received),
                    total: content.length
                )
            )
        )
    }
}
