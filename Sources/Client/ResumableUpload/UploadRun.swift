// One run of an upload.
//
// The run creates the upload resource or retrieves its offset, then appends until a response is final; Verdict.swift
// interprets the responses. The invariants: content is sent only at an offset that the server has reported, and content
// that the server may have accepted is sent again only if a repetition is safe.

import HTTPTypes
import SpoolgateCurl
import SpoolgatePosix
import SpoolgateUploadProtocol

/// Used by one thread, once.
final class UploadRun: TransferRun {
    let content: any UploadContent
    let target: URLText
    let options: Upload.Options
    let control: TransferControl
    let exchange: ServerExchange
    private let onEvent: (Upload.Event) -> Void
    private(set) var lastEvent: Upload.Event?

    var name: String { "the upload to \(target.text)" }
    var connection: Transfer.Connection { options.connection }
    var tokenLeft: Upload.Token? { token }

    var version: WireVersion
    var token: Upload.Token?
    var resource: URLText?
    /// The offset to append at; nil if it must be retrieved.
    var offset: Int64?
    /// The highest acknowledged offset.
    var received: Int64 = 0
    var maxAppend: Int64?
    let appendLimit: AppendLimit
    var minAppend: Int64 = 0
    var openAppends = OpenAppends.unheard
    /// Whether the server has reported the upload as complete.
    var isFinished = false
    var beginnings = 0
    var patience: RetryBackoff
    var nextProgress = Deadline.after(.zero)
    var contentFault: ContentFault?
    /// A success without upload fields, to an append of the bytes from `start` up to `end`; the upload resource must
    /// confirm it.
    var unconfirmed: (answer: Transfer.Answer, start: Int64, end: Int64)?
    /// An upload resource of another origin that an interim response named.
    var foreign: URLText?

    init(
        _ content: any UploadContent,
        to target: URLText,
        token: Upload.Token?,
        version: WireVersion,
        options: Upload.Options,
        control: TransferControl,
        connections: ConnectionPool,
        appendLimit: AppendLimit,
        tell: @escaping (Upload.Event) -> Void
    ) {
        self.content = content
        self.target = target
        self.token = token
        resource = token.flatMap { URLText($0.url) }
        self.version = version
        self.options = options
        self.control = control
        onEvent = tell
        self.appendLimit = appendLimit
        if let most = options.maximumAppend { appendLimit.begin(at: most) }
        maxAppend = appendLimit.bytes
        exchange = ServerExchange(
            options.connection,
            answerLimit: options.answerLimit,
            control: control,
            connections: connections
        )
        patience = RetryBackoff(options.connection)
    }

    func run() throws(TransferError) -> Transfer.Answer {
        try checkToken()
        while true {
            if let answer = try step() { return try judged(answer) }
        }
    }

    private func step() throws(TransferError) -> Transfer.Answer? {
        try checkWish()
        guard let resource else { return try begin() }
        guard let offset else { return try retrieve(resource) }
        return try append(to: resource, at: offset)
    }

    /// Returns the response; throws if the status is 400 or above.
    private func judged(_ answer: Transfer.Answer) throws(TransferError) -> Transfer.Answer {
        guard answer.status.code >= 400 else {
            var answer = answer
            if (300..<400).contains(answer.status.code) {
                answer.place = answer.location(from: target)?.text
            }
            // A progress bar must be full at the end.
            if let length = content.length ?? token?.length { tellWhole(length) }
            return answer
        }
        token = nil
        throw refusal(answer, "\(options.method.rawValue) \(target.text)")
    }

    private func checkToken() throws(TransferError) {
        if let told = token?.fingerprint, let present = content.fingerprint, told != present {
            throw error(.changed, "the file has changed since \(name) began; start again")
        }
        if let told = token?.length, let present = content.length, told != present {
            throw error(
                .changed,
                "the body has \(present) bytes, but \(name) began with \(told); start again"
            )
        }
    }

    // MARK: Resuming

    private func retrieve(_ resource: URLText) throws(TransferError) -> Transfer.Answer? {
        let purpose = "the offset retrieval by HEAD \(resource.text)"
        var fields = options.fields.withoutRepresentation
        version.name(in: &fields)
        let result = exchange.send(.head, resource, fields)
        guard let (answer, read) = try answered(result, purpose) else { return nil }
        limit(by: read)
        let verdict = Verdict(of: read, to: .retrieval, by: options.method)
        if verdict == .later {
            try wait(purpose, answer, read)
            return nil
        }
        let pending = unconfirmed
        unconfirmed = nil
        switch verdict {
        case .final: return answer
        case .acknowledged(let told):
            try resume(at: told ?? 0, read, purpose)
            guard let pending else { return nil }
            let isTaken = read.isComplete ?? (offset == pending.end)
            if isTaken, isWhole(pending.end) { return pending.answer }
            // The success did not come from the server of the upload.
            if offset ?? 0 <= pending.start { try wait(purpose, answer, read) }
        case .gone:
            // A server may forget an upload with its final response.
            if let pending, isWhole(pending.end) { return pending.answer }
            return try goneAnew(answer, read, purpose)
        case .unconfirmed:
            throw error(
                .unsupported,
                "\(purpose) returned \(sentence(answer)), without an Upload-Offset: this is not the "
                    + "upload server; check the URL, and whether the network requires a login",
                answer
            )
        case .redirected: throw redirected(answer, from: resource, purpose)
        default: throw refusal(answer, purpose)
        }
        return nil
    }

    private func resume(
        at told: Int64,
        _ answer: UploadAnswer,
        _ purpose: String
    ) throws(TransferError) {
        if let length = content.length, told > length || answer.length ?? length != length {
            throw error(
                .changed,
                "\(purpose): the server has \(told) of \(answer.length ?? length) bytes, but the "
                    + "body has \(length); start again"
            )
        }
        guard told >= received, content.canBeRead(from: told) else {
            throw error(
                .gone,
                "\(purpose): the server lost acknowledged bytes: it has \(told) of \(received); "
                    + "start again"
            )
        }
        offset = told
        isFinished = answer.isComplete == true
        progressed(to: told)
        if var token, token.mayBeComplete, !isFinished, told < content.length ?? .max {
            token.mayBeComplete = false
            setToken(token)
        }
    }

    private func isWhole(_ end: Int64) -> Bool {
        (content.length ?? token?.length).map { $0 == end } ?? (token?.mayBeComplete ?? false)
    }

    func goneAnew(
        _ answer: Transfer.Answer,
        _ read: UploadAnswer,
        _ purpose: String
    ) throws(TransferError) -> Transfer.Answer? {
        let reason = "\(purpose): the upload resource is gone (\(answer.status.code))"
        // The retrieval's status says only that the final response is gone, not that the upload was refused.
        if isFinished { return Transfer.Answer(status: .noContent, isLost: true) }
        if token?.mayBeComplete ?? false, !isRepeatable {
            throw error(
                .unknownOutcome,
                "\(reason), but everything was sent; check whether the server has it before you "
                    + "send it again",
                answer
            )
        }
        guard content.canBeRead(from: 0) else {
            throw error(
                .gone,
                "\(reason), and the beginning of the stream is no longer available; start again",
                answer
            )
        }
        (resource, offset, received) = (nil, nil, 0)
        token = nil
        if beginnings > 1 { try wait(purpose, answer, read) }
        tell(.begunAnew(reason: reason))
        return nil
    }

    // MARK: Results

    /// Returns the response.
    ///
    /// If it is missing, waits and returns nil.
    func answered(
        _ result: ExchangeResult,
        _ purpose: String
    ) throws(TransferError) -> (Transfer.Answer, UploadAnswer)? {
        if let fault = contentFault {
            contentFault = nil
            throw error(fault, in: purpose)
        }
        if let answered = result.answered { return answered }
        offset = nil
        try wait(after: result.fault, purpose)
        return nil
    }

    func wait(_ purpose: String, _ answer: Transfer.Answer, _ read: UploadAnswer)
        throws(TransferError)
    {
        try wait("\(purpose) returned \(sentence(answer))", answer, read.retryAfter)
    }

    func tell(_ event: Upload.Event) {
        lastEvent = event
        onEvent(event)
    }

    func tellWaiting(_ pause: Duration, reason: String) { tell(.waiting(pause, reason: reason)) }

    func redirected(_ answer: Transfer.Answer, from url: URLText, _ purpose: String)
        -> TransferError
    {
        let place = answer.redirection(from: url)
        return error(
            .redirected,
            "\(purpose) was redirected with \(sentence(answer)) \(place)",
            answer
        )
    }

    func refusal(_ answer: Transfer.Answer, _ purpose: String) -> TransferError {
        error(.refused, "\(purpose) was refused with \(sentence(answer))", answer)
    }

    private func sentence(_ answer: Transfer.Answer) -> String {
        let phrase = answer.status.reasonPhrase
        let problem = ProblemDocument.sentence(answer.fields, answer.content)
        return "\(answer.status.code)\(phrase.isEmpty ? "" : " \(phrase)")"
            + (problem.map { ": \($0)" } ?? "")
    }
}
