// One run of an upload, from its creation or its token to the final response.
//
// One thread, and one request at a time: create the upload resource, or ask it for its offset, then append from
// there, until a response is final. What a response means stands in Verdict.swift. The invariants: content is only
// sent at an offset that the server told; and what the server may have taken whole is never begun anew, unless
// repeating is safe.

import Curl
import HTTPTypes
import Posix
import UploadProtocol

/// One run of an upload.
///
/// Used by one thread, once.
final class UploadRun: TransferRun {
    let content: any UploadContent
    let target: URLText
    let options: UploadOptions
    let control: TransferControl
    let exchange: ServerExchange
    let tell: (UploadEvent) -> Void

    var name: String { "the upload to \(target.text)" }
    var connection: ConnectionOptions { options.connection }
    var tokenLeft: ResumeToken? { token }

    var version: WireVersion
    /// The upload resource; nil: there is none.
    var token: ResumeToken?
    var resource: URLText?
    /// What the server has; nil: it has to be asked.
    var offset: Int64?
    /// What the server has for sure.
    var received: Int64 = 0
    var maxAppend: Int64?
    var minAppend: Int64 = 0
    /// Whether the server said that the upload is complete.
    var isFinished = false
    var beginnings = 0
    var patience: Patience
    var nextProgress = Deadline.after(.zero)
    var contentFault: ContentFault?
    /// An upload resource of another origin that an interim response named.
    var foreign: URLText?

    init(
        _ content: any UploadContent,
        to target: URLText,
        token: ResumeToken?,
        version: WireVersion,
        options: UploadOptions,
        control: TransferControl,
        tell: @escaping (UploadEvent) -> Void
    ) {
        self.content = content
        self.target = target
        self.token = token
        resource = token.flatMap { URLText($0.url) }
        self.version = version
        self.options = options
        self.control = control
        self.tell = tell
        exchange = ServerExchange(
            options.connection,
            answerLimit: options.answerLimit,
            control: control
        )
        patience = Patience(options.connection)
    }

    /// Runs until the final response.
    func run() throws(TransferError) -> Answer {
        try checkToken()
        while true {
            if let answer = try step() { return try judged(answer) }
        }
    }

    private func step() throws(TransferError) -> Answer? {
        try checkWish()
        guard let resource else { return try begin() }
        guard let offset else { return try retrieve(resource) }
        return try append(to: resource, at: offset)
    }

    /// A final response of 400 or above is a refusal.
    private func judged(_ answer: Answer) throws(TransferError) -> Answer {
        guard answer.status.code >= 400 else { return answer }
        token = nil
        throw refusal(answer, "\(options.method.rawValue) \(target.text)")
    }

    private func checkToken() throws(TransferError) {
        guard let token else { return }
        let lengths = (token.length, content.length)
        if let told = token.fingerprint, let present = content.fingerprint, told != present {
            throw error(
                .changed,
                "the file changed since the upload to \(target.text) began; begin again"
            )
        }
        if let told = lengths.0, let present = lengths.1, told != present {
            throw error(
                .changed,
                "the body has \(present) bytes, and the upload to \(target.text) began with \(told); "
                    + "begin again"
            )
        }
    }

    // MARK: Going on

    private func retrieve(_ resource: URLText) throws(TransferError) -> Answer? {
        let purpose = "the offset retrieval by HEAD \(resource.text)"
        var fields = options.fields.withoutRepresentation
        version.name(in: &fields)
        let result = exchange.send(.head, resource, fields)
        guard let (answer, read) = try answered(result, purpose) else { return nil }
        limit(by: read)
        switch Verdict(of: read, to: .retrieval) {
        case .final: return answer
        case .acknowledged(let told):
            try resume(at: told ?? 0, read, purpose)
        case .gone:
            return try goneAnew(answer, read, purpose)
        case .later: try wait(purpose, answer, read)
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
                "\(purpose): the server has \(told) of \(answer.length ?? length) bytes, and the "
                    + "body \(length); it is another body"
            )
        }
        guard told >= received, content.canBeRead(from: told) else {
            throw error(
                .gone,
                "\(purpose): the server lost bytes that it had: it has \(told) of \(received); "
                    + "begin again"
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

    func goneAnew(
        _ answer: Answer,
        _ read: UploadAnswer,
        _ purpose: String
    ) throws(TransferError) -> Answer? {
        let reason = "\(purpose): the upload resource is gone (\(answer.status.code))"
        if isFinished { return Answer(status: answer.status, fields: answer.fields, isLost: true) }
        if token?.mayBeComplete ?? false, !isRepeatable {
            throw error(
                .unknownOutcome,
                "\(reason), and everything had been sent; look whether the server has it before you "
                    + "send it again",
                answer
            )
        }
        guard content.canBeRead(from: 0) else {
            throw error(
                .gone,
                "\(reason), and the stream's beginning is not kept any more; begin again",
                answer
            )
        }
        (resource, offset, received) = (nil, nil, 0)
        token = nil
        if beginnings > 1 { try wait(purpose, answer, read) }
        tell(.begunAnew(reason: reason))
        return nil
    }

    // MARK: Ends

    /// The answer and what it says; nil: it is asked again.
    func answered(
        _ result: ExchangeResult,
        _ purpose: String
    ) throws(TransferError) -> (Answer, UploadAnswer)? {
        if let fault = contentFault {
            contentFault = nil
            throw error(fault.kind, "\(purpose): \(fault.reason)")
        }
        if let answer = result.answer, let head = result.head {
            return (answer, UploadAnswer(head, retryAfter: result.retryAfter))
        }
        offset = nil
        try wait(after: result.fault, purpose)
        return nil
    }

    /// Waits before it is tried again what was answered with `answer`.
    func wait(_ purpose: String, _ answer: Answer, _ read: UploadAnswer) throws(TransferError) {
        try wait("\(purpose) was answered with \(sentence(answer))", answer, read.retryAfter)
    }

    func tellWaiting(_ pause: Duration, reason: String) { tell(.waiting(pause, reason: reason)) }

    func refusal(_ answer: Answer, _ purpose: String) -> TransferError {
        error(.refused, "\(purpose) was refused with \(sentence(answer))", answer)
    }

    private func sentence(_ answer: Answer) -> String {
        let phrase = answer.status.reasonPhrase
        let problem = ProblemDocument.sentence(answer.fields, answer.content)
        return "\(answer.status.code)\(phrase.isEmpty ? "" : " \(phrase)")"
            + (problem.map { ": \($0)" } ?? "")
    }
}
