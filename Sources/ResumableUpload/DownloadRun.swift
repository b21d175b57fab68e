// One run of a download, from its first byte or its token to its last.
//
// After a cut the rest is asked for by `Range`, with `If-Range` and the entity tag or the date that the beginning
// had, so that two representations are never put together (RFC 9110 §13.1.5, §14). The invariant: a byte goes to
// the destination once, and at its offset.

import Curl
import Glibc
import HTTPTypes
import Posix
import TextFormats
import UploadProtocol

/// One run of a download.
///
/// Used by one thread, once.
final class DownloadRun {
    private let source: URLText
    private let options: DownloadOptions
    private let control: TransferControl
    private let exchange: ServerExchange
    private let tell: (DownloadEvent) -> Void
    private let place: DownloadPlace
    private var patience: Patience

    private var validator: String?
    private var total: Int64?
    /// Whether the response under way is one that content is taken from.
    private var isTaken: Bool?
    private var kept: [UInt8] = []
    private var fault: ContentFault?
    private var nextProgress = Deadline.after(.zero)
    private var nextSync = Deadline.after(.seconds(1))

    private static let answerLimit = 64 << 10
    private var purpose: String { "the download by GET \(source.text)" }

    init(
        _ source: URLText,
        to destination: DownloadDestination,
        token: DownloadToken?,
        options: DownloadOptions,
        control: TransferControl,
        tell: @escaping (DownloadEvent) -> Void
    ) throws(TransferError) {
        self.source = source
        self.options = options
        self.control = control
        self.tell = tell
        exchange = ServerExchange(options.connection, answerLimit: 0, control: control)
        patience = Patience(options.connection)
        validator = token?.validator
        do throws(ContentFault) {
            place = try DownloadPlace(destination, at: token?.offset ?? 0)
        } catch {
            throw TransferError(error.kind, "the download of \(source.text): \(error.reason)")
        }
    }

    /// Runs until everything has come.
    func run() throws(TransferError) -> Answer {
        while true {
            try checkWish()
            if let answer = try ask() { return answer }
        }
    }

    private func ask() throws(TransferError) -> Answer? {
        if validator == nil, place.offset > 0 { try restart("the server names no validator") }
        var fields = options.fields
        // Offsets are those of the bytes as they are stored.
        fields[.acceptEncoding] = "identity"
        if let validator, place.offset > 0 {
            fields[.range] = "bytes=\(place.offset)-"
            fields[.ifRange] = validator
        }
        (isTaken, kept, fault) = (nil, [], nil)
        let result = exchange.send(
            .get,
            source,
            fields,
            sink: { [self] head, bytes in take(bytes, of: head) }
        )
        // A response without content was not looked at yet.
        if let head = result.head, fault == nil, isTaken == nil { begin(head) }
        if let fault { throw error(fault.kind, "\(purpose): \(fault.reason)") }
        try save()
        return try judged(result)
    }

    private func judged(_ result: ExchangeResult) throws(TransferError) -> Answer? {
        if let head = result.head {
            if isTaken == true {
                if total.map({ place.offset == $0 }) ?? (result.fault == nil) {
                    return try finish(head)
                }
                try checkWish()
                try wait(result.fault?.reason ?? "the content ended early", nil)
                return nil
            }
            return try judged(head)
        }
        try checkWish()
        let fault = result.fault ?? ClientFault(.noAnswer, "no answer")
        switch fault.kind {
        case .notTried: throw error(.invalid, "\(purpose) was not tried: \(fault.reason)")
        case .noTLS where !fault.mayPass:
            throw error(
                .untrusted,
                "\(purpose): no TLS that can be trusted: \(fault.reason); look at the server's "
                    + "certificate and the authorities"
            )
        default: try wait(fault.reason, nil)
        }
        return nil
    }

    /// A response that has nothing of the representation.
    private func judged(_ head: ResponseHead) throws(TransferError) -> Answer? {
        let answer = Answer(status: head.status, fields: head.fields, content: kept)
        switch head.status.code {
        case 416:
            if Self.range(head)?.total == place.offset { return try finish(head) }
            try restart("the server has no bytes from \(place.offset) on")
            try wait("\(purpose) was answered with 416", nil)
        case 408, 425, 429, 500, 502, 503, 504, 507:
            let told = head.fields.value(of: .retryAfter).flatMap { Int64(digits: $0) }
            try wait("it was answered with \(head.status.code)", told.map { .seconds($0) })
        default:
            let location = head.fields.value(of: .location).map { " to \($0)" } ?? ""
            let problem = ProblemDocument.sentence(head.fields, kept).map { ": \($0)" } ?? ""
            throw TransferError(
                .refused,
                "\(purpose) was refused with \(head.status.code)\(location)\(problem)",
                answer: answer
            )
        }
        return nil
    }

    private func finish(_ head: ResponseHead) throws(TransferError) -> Answer {
        do throws(ContentFault) { try place.finish() } catch {
            throw self.error(error.kind, "\(purpose): \(error.reason)")
        }
        tellProgress()
        return Answer(status: head.status, fields: head.fields)
    }

    // MARK: Content

    /// Takes content of a response; false: give up.
    private func take(_ bytes: UnsafeRawBufferPointer, of head: ResponseHead) -> Bool {
        if isTaken == nil { begin(head) }
        guard fault == nil else { return false }
        guard isTaken == true else {
            kept.append(contentsOf: bytes.prefix(Self.answerLimit - kept.count))
            return true
        }
        do throws(ContentFault) {
            try place.take(bytes)
            patience.progressed()
            if nextSync.hasPassed { try checkpoint() }
        } catch {
            fault = error
            return false
        }
        if nextProgress.hasPassed { tellProgress() }
        return true
    }

    /// Looks at a response's head before its content.
    private func begin(_ head: ResponseHead) {
        isTaken = false
        switch head.status.code {
        case 200:
            if place.offset > 0 {
                guard place.restart() else {
                    fault = ContentFault(
                        kind: .changed,
                        reason: "another representation is there, or the server does not give "
                            + "parts; begin again"
                    )
                    return
                }
                tell(.begunAnew(reason: "\(purpose): another representation is there"))
            }
            total = head.fields.value(of: .contentLength).flatMap { Int64(digits: $0) }
            validator = Self.validator(head.fields)
            isTaken = true
            tellToken()
        case 206:
            guard let range = Self.range(head), range.start == place.offset else {
                fault = ContentFault(
                    kind: .refused,
                    reason: "the part that came does not begin at \(place.offset)"
                )
                return
            }
            if let tag = head.fields.value(of: .eTag), let validator, validator.hasPrefix("\""),
                tag != validator
            {
                fault = ContentFault(kind: .changed, reason: "the part is of \(tag)")
                return
            }
            total = range.total ?? total
            isTaken = true
        default: break
        }
    }

    /// A strong entity tag, or the date (RFC 9110 §13.1.5).
    private static func validator(_ fields: HTTPFields) -> String? {
        if let tag = fields.value(of: .eTag), tag.hasPrefix("\"") { return tag }
        return fields.value(of: .lastModified)
    }

    /// `bytes 5-9/10` or `bytes */10`, of which either number may be absent.
    private static func range(_ head: ResponseHead) -> (start: Int64?, total: Int64?)? {
        guard let value = head.fields.value(of: .contentRange), value.hasPrefix("bytes ") else {
            return nil
        }
        let parts = value.dropFirst(6).split(separator: "/")
        guard parts.count == 2 else { return nil }
        let start = parts[0].split(separator: "-").first.flatMap { Int64(digits: $0) }
        return (start, Int64(digits: parts[1]))
    }

    private func restart(_ reason: String) throws(TransferError) {
        guard place.restart() else {
            throw error(
                .changed,
                "\(purpose): \(reason), and what came was handed over; begin again"
            )
        }
        validator = nil
        tell(.begunAnew(reason: "\(purpose): \(reason)"))
    }

    /// Makes what came durable, and then says so.
    private func checkpoint() throws(ContentFault) {
        nextSync = .after(.seconds(1))
        try place.sync()
        tellToken()
    }

    private func save() throws(TransferError) {
        do throws(ContentFault) { try checkpoint() } catch {
            throw self.error(error.kind, "\(purpose): \(error.reason)")
        }
    }

    private func tellToken() {
        guard let validator else { return }
        let token = DownloadToken(url: source.text, offset: place.offset, validator: validator)
        tell(.resumable(token))
    }

    private func tellProgress() {
        nextProgress = .after(.milliseconds(100))
        tell(.progress(Progress(received: place.offset, sent: place.offset, total: total)))
    }

    // MARK: Ends

    private func checkWish() throws(TransferError) {
        switch control.wish {
        case .run: return
        case .pause: throw error(.paused, "\(purpose) was paused")
        case .cancel: throw error(.cancelled, "\(purpose) was cancelled")
        }
    }

    private func wait(_ reason: String, _ told: Duration?) throws(TransferError) {
        guard let pause = patience.next(told) else {
            throw error(
                .later,
                "\(purpose): \(reason); it did not go on for \(options.connection.retryFor), try "
                    + "again later"
            )
        }
        tell(.waiting(pause, reason: "\(purpose): \(reason)"))
        control.wait(pause)
        try checkWish()
    }

    private func error(_ kind: TransferError.Kind, _ reason: String) -> TransferError {
        TransferError(kind, reason)
    }
}
