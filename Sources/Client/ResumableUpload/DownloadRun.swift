// One run of a download, from its first byte or its token to its last.
//
// After a cut the rest is asked for by `Range`, with `If-Range` and the entity tag or the date that the beginning
// had, so that two representations are never put together (RFC 9110 §13.1.5, §14). The invariant: a byte goes to
// the destination once, and at its offset.

import Glibc
import HTTPTypes
import SpoolgateCurl
import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// One run of a download.
///
/// Used by one thread, once.
final class DownloadRun: TransferRun {
    private let source: URLText
    private let options: Download.Options
    let control: TransferControl
    private let exchange: ServerExchange
    private let tell: (Download.Event) -> Void
    private let place: DownloadPlace
    var patience: RetryBackoff

    private var validator: String?
    /// What everything is compared with; nil: not known, or not wanted.
    private var digest: DownloadDigest?
    /// Whether everything came before, and was not right.
    private var wasCorrupt = false
    private var total: Int64?
    /// Whether the response under way is one that content is taken from.
    private var isTaken: Bool?
    private var kept: [UInt8] = []
    private var fault: ContentFault?
    private var nextProgress = Deadline.after(.zero)
    private var nextSync = Deadline.after(.seconds(1))

    private static let answerLimit = 64 << 10
    var name: String { "the download of \(source.text)" }
    var connection: Transfer.Connection { options.connection }
    /// Its own token is told by an event.
    var tokenLeft: Upload.Token? { nil }

    init(
        _ source: URLText,
        to destination: Download.Destination,
        token: Download.Token?,
        options: Download.Options,
        control: TransferControl,
        connections: ConnectionPool,
        tell: @escaping (Download.Event) -> Void
    ) throws(TransferError) {
        self.source = source
        self.options = options
        self.control = control
        self.tell = tell
        exchange = ServerExchange(
            options.connection,
            answerLimit: 0,
            control: control,
            connections: connections
        )
        patience = RetryBackoff(options.connection)
        validator = token?.validator
        digest = options.verifiesDigest ? token?.digest.flatMap { DownloadDigest(value: $0) } : nil
        if options.verifiesDigest, case .pieces = destination.kind, token?.offset ?? 0 > 0 {
            throw TransferError(
                .invalid,
                "the download of \(source.text): what was handed over before cannot be verified; "
                    + "begin again, or do not ask for it"
            )
        }
        do throws(ContentFault) {
            place = try DownloadPlace(destination, at: token?.offset ?? 0)
        } catch {
            throw TransferError(error.kind, "the download of \(source.text): \(error.reason)")
        }
    }

    /// Runs until everything has come.
    func run() throws(TransferError) -> Transfer.Answer {
        do throws(TransferError) {
            while true {
                try checkWish()
                if let answer = try ask() { return answer }
            }
        } catch {
            if place.offset == 0, !error.mayWorkLater { place.discard() }
            throw error
        }
    }

    private func ask() throws(TransferError) -> Transfer.Answer? {
        if validator == nil, place.offset > 0 { try restart("the server names no validator") }
        var fields = options.fields
        // Offsets are those of the bytes as they are stored.
        fields[.acceptEncoding] = "identity"
        if options.verifiesDigest { fields[.wantReprDigest] = DownloadDigest.wanted }
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
        do throws(ContentFault) {
            if let fault { throw fault }
            // A response without content was not looked at yet.
            if let head = result.head, isTaken == nil { try begin(head) }
            try checkpoint()
        } catch {
            throw self.error(error, in: name)
        }
        return try judged(result)
    }

    private func judged(_ result: ExchangeResult) throws(TransferError) -> Transfer.Answer? {
        guard let head = result.head else {
            try wait(after: result.fault, name)
            return nil
        }
        guard isTaken == true else { return try judged(head, result.retryAfter) }
        if total.map({ place.offset == $0 }) ?? (result.fault == nil) { return try finish(head) }
        try checkWish()
        try wait("\(name): \(result.fault?.reason ?? "the content ended early")", nil, nil)
        return nil
    }

    /// A response that has nothing of the representation.
    private func judged(_ head: ResponseHead, _ told: Duration?) throws(TransferError) -> Transfer
        .Answer?
    {
        let answer = Transfer.Answer(status: head.status, fields: head.fields, content: kept)
        let reason = "\(name) was answered with \(head.status.code)"
        switch head.status.code {
        case 416:
            if Self.range(head)?.total == place.offset { return try finish(head) }
            try restart("the server has no bytes from \(place.offset) on")
            try wait(reason, answer, told)
        case 408, 425, 429, 500, 502, 503, 504, 507: try wait(reason, answer, told)
        case 300..<400:
            let place = answer.redirection(from: source)
            throw error(
                .redirected,
                "\(name) was redirected with \(head.status.code) \(place)",
                answer
            )
        default:
            let problem = ProblemDocument.sentence(head.fields, kept).map { ": \($0)" } ?? ""
            throw error(
                .refused,
                "\(name) was refused with \(head.status.code)\(problem)",
                answer
            )
        }
        return nil
    }

    /// Gives what is whole its name; nil where it is not right, and comes again.
    private func finish(_ head: ResponseHead) throws(TransferError) -> Transfer.Answer? {
        do throws(ContentFault) {
            if options.verifiesDigest, try !verified() {
                guard mayComeAgain() else {
                    throw ContentFault(
                        kind: .corrupt,
                        reason: "\(place.offset) bytes came, and they are not what the server's "
                            + "Repr-Digest says; ask whoever runs it"
                    )
                }
                return nil
            }
            try place.finish()
        } catch {
            if error.kind == .corrupt { place.discard() }
            throw self.error(error, in: name)
        }
        tellProgress()
        return Transfer.Answer(status: head.status, fields: head.fields)
    }

    /// Whether what came is what the server says that it is.
    private func verified() throws(ContentFault) -> Bool {
        guard let digest else {
            throw ContentFault(kind: .refused, reason: DownloadDigest.absence)
        }
        let isRight = try place.isRight(digest) { control.isStopped }
        guard let isRight else {
            throw ContentFault(kind: .paused, reason: "stopped while it was digested")
        }
        return isRight
    }

    /// Begins anew, once, where what came can be put away: a disk may have lost what was written before a crash.
    private func mayComeAgain() -> Bool {
        guard !wasCorrupt, place.restart() else { return false }
        wasCorrupt = true
        (validator, digest) = (nil, nil)
        tell(.begunAnew(reason: "\(name): what came is not what the server's Repr-Digest says"))
        return true
    }

    // MARK: Content

    /// Takes content of a response; false: give up.
    private func take(_ bytes: UnsafeRawBufferPointer, of head: ResponseHead) -> Bool {
        do throws(ContentFault) {
            if isTaken == nil { try begin(head) }
            guard isTaken == true else {
                kept.append(contentsOf: bytes.prefix(Self.answerLimit - kept.count))
                return true
            }
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
    private func begin(_ head: ResponseHead) throws(ContentFault) {
        isTaken = false
        switch head.status.code {
        case 200:
            // Every server that had a validator for the beginning has one for what is there now.
            if place.offset > 0, Self.validator(head.fields) == nil {
                throw ContentFault(
                    kind: .refused,
                    reason:
                        "it was answered with 200 and neither an ETag nor a Last-Modified, which "
                        + "what came before had; look whether the network wants a login, and give "
                        + "up what came with --cancel if the server is another one now"
                )
            }
            if place.offset > 0 {
                guard place.restart() else {
                    throw ContentFault(
                        kind: .changed,
                        reason: "another representation is there, or the server does not give "
                            + "parts; begin again"
                    )
                }
                tell(.begunAnew(reason: "\(name): another representation is there"))
            }
            total = head.fields.value(of: .contentLength).flatMap { Int64(digits: $0) }
            validator = Self.validator(head.fields)
            digest = nil
            try learnDigest(head)
            isTaken = true
            tellToken()
        case 206:
            guard let range = Self.range(head), range.start == place.offset else {
                throw ContentFault(
                    kind: .refused,
                    reason: "the part that came does not begin at \(place.offset)"
                )
            }
            if let tag = head.fields.value(of: .eTag), let validator, validator.hasPrefix("\""),
                tag != validator
            {
                throw ContentFault(kind: .changed, reason: "the part is of \(tag)")
            }
            total = range.total ?? total
            try learnDigest(head)
            isTaken = true
        default: break
        }
    }

    /// Learns what everything is compared with; throws where that cannot be done.
    private func learnDigest(_ head: ResponseHead) throws(ContentFault) {
        guard options.verifiesDigest else { return }
        let told = DownloadDigest(head.fields)
        if let told, let digest, !told.agrees(with: digest) {
            throw ContentFault(kind: .changed, reason: "the part is of \(told.value)")
        }
        digest = digest ?? told
        guard let digest else {
            throw ContentFault(kind: .refused, reason: DownloadDigest.absence)
        }
        place.willCompare(with: digest)
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
                "\(name): \(reason), and what came was handed over; begin again"
            )
        }
        (validator, digest) = (nil, nil)
        tell(.begunAnew(reason: "\(name): \(reason)"))
    }

    /// Makes what came durable, and then says so.
    private func checkpoint() throws(ContentFault) {
        nextSync = .after(.seconds(1))
        try place.sync()
        tellToken()
    }

    private func tellToken() {
        guard let validator else { return }
        let token = Download.Token(
            url: source.text,
            offset: place.offset,
            validator: validator,
            digest: digest?.value
        )
        tell(.resumable(token))
    }

    private func tellProgress() {
        nextProgress = .after(.milliseconds(100))
        tell(.progress(Transfer.Progress(received: place.offset, sent: place.offset, total: total)))
    }

    // MARK: Ends

    func tellWaiting(_ pause: Duration, reason: String) { tell(.waiting(pause, reason: reason)) }
}
