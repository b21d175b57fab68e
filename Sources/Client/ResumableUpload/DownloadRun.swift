// One run of a download.
//
// After an interruption, the run requests the rest by `Range`, with `If-Range` and the strong validator of the
// beginning, and compares each part with the beginning. It never combines two representations (RFC 9110 §13.1.5, §14).
// The invariant: each byte is written once, at its offset.

import Glibc
import HTTPTypes
import SpoolgateCurl
import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// Used by one thread, once.
final class DownloadRun: TransferRun {
    private let source: URLText
    private let options: Download.Options
    let control: TransferControl
    private let exchange: ServerExchange
    private let report: (Download.Event) -> Void
    private let place: DownloadPlace
    var patience: RetryBackoff

    /// The representation of the received bytes; nil if no bytes were received, or if they will be downloaded again.
    private var begun: Representation?
    /// Whether earlier content had an entity tag or a date; if so, a response with neither is not trusted.
    private var wasNamed: Bool
    /// Whether a complete download had a wrong digest.
    private var wasCorrupt = false
    private var mismatches = 0
    private var furthest: Int64 = 0
    /// Whether the response's content is written to the destination; nil until its header section has been examined.
    private var isTaken: Bool?
    /// The range of the response's content; nil for the whole representation.
    private var part: PartRange?
    private var mismatch: String?
    private var kept: [UInt8] = []
    private var fault: ContentFault?
    private var nextProgress = Deadline.after(.zero)
    private var nextSync = Deadline.after(.seconds(1))

    private static let responseLimit = 64 << 10
    /// The number of mismatching parts to tolerate; one more ends the download.
    private static let mismatchLimit = 2
    var name: String { "the download of \(source.text)" }
    var connection: Transfer.Connection { options.connection }
    /// Always nil, because an event reports the token of a download.
    var tokenLeft: Upload.Token? { nil }

    init(
        _ source: URLText,
        to destination: Download.Destination,
        _ channel: DownloadChannel,
        token: Download.Token?,
        options: Download.Options,
        control: TransferControl,
        connections: ConnectionPool,
        report: @escaping (Download.Event) -> Void
    ) throws(TransferError) {
        self.source = source
        self.options = options
        self.control = control
        self.report = report
        exchange = ServerExchange(
            options.connection,
            responseLimit: 0,
            control: control,
            connections: connections
        )
        patience = RetryBackoff(options.connection)
        begun = token.map { Representation($0) }
        wasNamed = token != nil
        let name = "the download of \(source.text)"
        for field in [HTTPField.Name.range, .ifRange] where options.fields.contains(field) {
            throw TransferError(.invalid, "\(name): the field \(field) cannot be set; remove it")
        }
        do throws(ContentFault) {
            place = try DownloadPlace(destination, channel, after: token) { control.isStopped }
        } catch {
            throw TransferError(error.kind, "\(name): \(error.reason)")
        }
        if options.verifiesDigest, place.isHandedOver, place.offset > 0 {
            throw TransferError(
                .invalid,
                "\(name): content that was already passed on cannot be verified; start again, or do "
                    + "not request verification"
            )
        }
    }

    func run() throws(TransferError) -> Transfer.Response {
        do throws(TransferError) {
            if let loss = place.loss { try restart(loss) }
            while true {
                try checkWish()
                if let response = try send() { return response }
            }
        } catch {
            if place.offset == 0, !error.mayWorkLater { place.discard() }
            throw error
        }
    }

    private func send() throws(TransferError) -> Transfer.Response? {
        if begun?.validator == nil, place.offset > 0 { try restart(Representation.absence) }
        var fields = options.fields
        // Offsets count bytes without a content coding.
        fields[.acceptEncoding] = "identity"
        if options.verifiesDigest { fields[.wantReprDigest] = DownloadDigest.wanted }
        if let validator = begun?.validator, place.offset > 0 {
            fields[.range] = "bytes=\(place.offset)-"
            fields[.ifRange] = validator
        }
        (isTaken, kept, fault, part, mismatch) = (nil, [], nil, nil, nil)
        let result = exchange.send(
            .get,
            source,
            fields,
            sink: { [self] head, bytes in take(bytes, of: head) }
        )
        do throws(ContentFault) {
            if let fault { throw fault }
            // Without content, the response has not been examined yet.
            if let head = result.head, isTaken == nil { try begin(head) }
            if mismatch == nil { try checkpoint() }
        } catch {
            throw self.error(error, in: name)
        }
        if let mismatch {
            try comeAgain(mismatch)
            return nil
        }
        return try judged(result)
    }

    private func judged(_ result: ExchangeResult) throws(TransferError) -> Transfer.Response? {
        guard let head = result.head else {
            try wait(after: result.fault, name)
            return nil
        }
        guard isTaken == true else { return try judged(head, result.retryAfter) }
        if begun?.total.map({ place.offset == $0 }) ?? (part == nil && result.fault == nil) {
            return try finish(head)
        }
        try checkWish()
        // A server may send less than the requested range.
        if result.fault == nil, let part, place.offset == part.end { return nil }
        try wait("\(name): \(result.fault?.reason ?? "the content ended early")", nil, nil)
        return nil
    }

    /// Handles a response without content of the representation, such as an error.
    private func judged(_ head: ResponseHead, _ stated: Duration?) throws(TransferError) -> Transfer
        .Response?
    {
        let response = Transfer.Response(status: head.status, fields: head.fields, content: kept)
        let reason = "\(name) returned \(head.status.code)"
        switch head.status.code {
        case 416:
            let total = PartRange.total(head.fields)
            let difference = begun?.difference(from: Representation(head.fields, total: total))
            if total == place.offset, begun != nil, difference == nil { return try finish(head) }
            try comeAgain(difference ?? "the server has no bytes from \(place.offset) on")
        case 408, 425, 429, 500, 502, 503, 504, 507: try wait(reason, response, stated)
        case 300..<400:
            let place = response.redirection(from: source)
            throw error(
                .redirected,
                "\(name) was redirected with \(head.status.code) \(place)",
                response
            )
        default:
            let problem = ProblemDocument.sentence(head.fields, kept).map { ": \($0)" } ?? ""
            throw error(
                .refused,
                "\(name) was refused with \(head.status.code)\(problem)",
                response
            )
        }
        return nil
    }

    /// Finishes the download.
    ///
    /// Returns nil if the digest does not match and the content must be downloaded again.
    private func finish(_ head: ResponseHead) throws(TransferError) -> Transfer.Response? {
        do throws(ContentFault) {
            if options.verifiesDigest, try !verified() {
                guard mayComeAgain() else {
                    throw ContentFault(
                        kind: .corrupt,
                        reason: "the \(place.offset) bytes received do not match the server's "
                            + "Repr-Digest; ask the server's operator"
                    )
                }
                return nil
            }
            try place.finish()
        } catch {
            if error.kind == .corrupt { place.discard() }
            throw self.error(error, in: name)
        }
        reportProgress()
        return Transfer.Response(status: head.status, fields: head.fields)
    }

    private func verified() throws(ContentFault) -> Bool {
        guard let digest = begun?.digest else {
            throw ContentFault(kind: .refused, reason: DownloadDigest.absence)
        }
        guard let isRight = try place.isRight(digest) else {
            throw ContentFault(kind: .paused, reason: "stopped while its digest was computed")
        }
        return isRight
    }

    /// Discards the received bytes to start again; returns false the second time, or if the bytes were passed on.
    ///
    /// A second download makes sense because a disk may have lost bytes in a crash.
    private func mayComeAgain() -> Bool {
        guard !wasCorrupt, place.restart() else { return false }
        wasCorrupt = true
        begun = nil
        report(.begunAnew(reason: "\(name): the content does not match the server's Repr-Digest"))
        return true
    }

    // MARK: Content

    /// Handles received bytes.
    ///
    /// Returns false to end the transfer.
    private func take(_ bytes: UnsafeRawBufferPointer, of head: ResponseHead) -> Bool {
        do throws(ContentFault) {
            if isTaken == nil { try begin(head) }
            guard mismatch == nil else { return false }
            guard isTaken == true else {
                kept.append(contentsOf: bytes.prefix(Self.responseLimit - kept.count))
                return true
            }
            if let part, Int64(bytes.count) > part.end - place.offset {
                mismatch = "the part has more bytes than its Content-Range"
                return false
            }
            try place.take(bytes)
            noteProgress()
            if nextSync.hasPassed { try checkpoint() }
        } catch {
            fault = error
            return false
        }
        if nextProgress.hasPassed { reportProgress() }
        return true
    }

    /// Without a validator, bytes count as progress only beyond the highest earlier offset.
    private func noteProgress() {
        guard begun?.validator != nil || place.offset > furthest else { return }
        furthest = max(furthest, place.offset)
        patience.progressed()
    }

    private func begin(_ head: ResponseHead) throws(ContentFault) {
        isTaken = false
        switch head.status.code {
        case 200: try beginWhole(head)
        case 206: try beginPart(head)
        default: return
        }
        if isTaken == true {
            place.note(Transfer.Response(status: head.status, fields: head.fields))
        }
    }

    private func beginWhole(_ head: ResponseHead) throws(ContentFault) {
        let total = head.fields.value(of: .contentLength).flatMap { Int64(digits: $0) }
        let whole = Representation(head.fields, total: total)
        // A server that sent a validator for the beginning also sends one for the present representation.
        if wasNamed, !whole.isNamed {
            throw ContentFault(
                kind: .refused,
                reason:
                    "the response is a 200 with neither an ETag nor a Last-Modified, which the earlier "
                    + "one had; check whether the network requires a login, or use --cancel if the "
                    + "server has changed"
            )
        }
        if place.offset > 0 {
            guard place.restart() else {
                throw ContentFault(
                    kind: .changed,
                    reason: "the representation has changed, or the server does not send parts; "
                        + "start again"
                )
            }
            report(.begunAnew(reason: "\(name): the representation has changed"))
        }
        begun = whole
        wasNamed = whole.isNamed
        try learnDigest()
        isTaken = true
        try reportToken()
    }

    private func beginPart(_ head: ResponseHead) throws(ContentFault) {
        let range = PartRange(head.fields)
        mismatch = difference(of: range, in: head.fields)
        guard mismatch == nil, let range else { return }
        part = range
        begun?.learn(from: Representation(head.fields, total: range.total))
        try learnDigest()
        isTaken = true
    }

    /// Returns why the part does not continue the received bytes; nil if it does.
    private func difference(of range: PartRange?, in fields: HTTPFields) -> String? {
        guard place.offset > 0, let begun else {
            return "the server sent a part that was not requested"
        }
        guard let range else {
            let value = fields.value(of: .contentRange)
            let type = fields.value(of: .contentType) ?? ""
            return type.lowercased().hasPrefix("multipart/byteranges")
                ? "the server sent several parts for one range"
                : value.map { "the server sent a part with the unusable Content-Range \($0)" }
                    ?? "the server sent a part without Content-Range"
        }
        guard range.start == place.offset else {
            return "the part begins at \(range.start), not at \(place.offset)"
        }
        let length = fields.value(of: .contentLength)
        if let length, Int64(digits: length) != range.count {
            return "the part has \(length) bytes, but its Content-Range has \(range.count)"
        }
        return begun.difference(from: Representation(fields, total: range.total))
    }

    /// Throws if a digest is to be verified but the server sent none.
    private func learnDigest() throws(ContentFault) {
        guard options.verifiesDigest else { return }
        guard let digest = begun?.digest else {
            throw ContentFault(kind: .refused, reason: DownloadDigest.absence)
        }
        place.willCompare(with: digest)
    }

    /// Starts again after a part that does not match; throws if the download must end.
    private func comeAgain(_ reason: String) throws(TransferError) {
        guard mismatches < Self.mismatchLimit else {
            // Resuming from these bytes would fail in the same way.
            place.discard()
            throw error(
                .changed,
                "\(name): \(reason), as \(Self.mismatchLimit) times before; check the server: its parts do "
                    + "not match the whole"
            )
        }
        mismatches += 1
        try restart(reason)
        try wait("\(name): \(reason)", nil, nil)
    }

    private func restart(_ reason: String) throws(TransferError) {
        guard place.restart() else {
            throw error(
                .changed,
                "\(name): \(reason), but content was already passed on; start again"
            )
        }
        begun = nil
        report(.begunAnew(reason: "\(name): \(reason)"))
    }

    /// Makes the received bytes durable, then reports the token.
    private func checkpoint() throws(ContentFault) {
        nextSync = .after(.seconds(1))
        try place.sync()
        try reportToken()
    }

    private func reportToken() throws(ContentFault) {
        guard let begun, let validator = begun.validator else { return }
        let token = Download.Token(
            url: source.text,
            offset: place.offsetTaken,
            validator: validator,
            lastModified: begun.tag == nil ? nil : begun.modified,
            date: begun.date,
            total: begun.total,
            digest: begun.digest?.value,
            tail: try place.tail()
        )
        report(.resumable(token))
    }

    private func reportProgress() {
        nextProgress = .after(.milliseconds(100))
        report(
            .progress(
                Transfer.Progress(received: place.offset, sent: place.offset, total: begun?.total)
            )
        )
    }

    // MARK: Ends

    func reportWaiting(_ pause: Duration, reason: String) {
        report(.waiting(pause, reason: reason))
    }
}
