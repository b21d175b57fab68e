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
final class UploadRun {
    private let content: any UploadContent
    private let target: URLText
    private let options: UploadOptions
    private let control: TransferControl
    private let exchange: ServerExchange
    private let tell: (UploadEvent) -> Void

    private var version: WireVersion
    /// The upload resource; nil: there is none.
    private(set) var token: ResumeToken?
    private var resource: URLText?
    /// What the server has; nil: it has to be asked.
    private var offset: Int64?
    /// What the server has for sure.
    private var received: Int64 = 0
    private var maxAppend: Int64?
    private var minAppend: Int64 = 0
    /// Whether the server said that the upload is complete.
    private var isFinished = false
    private var beginnings = 0
    private var patience: Patience
    private var nextProgress = Deadline.after(.zero)
    private var contentFault: ContentFault?

    private static let progressInterval = Duration.milliseconds(100)

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

    // MARK: Beginning

    private func begin() throws(TransferError) -> Answer? {
        let portion = try portion(from: 0)
        let isSmall = portion.isLast && (portion.count < options.plainBelow || portion.count == 0)
        if options.creation == .plain || (isSmall && beginnings == 0) {
            return try sendPlain(portion)
        }
        beginnings += 1
        return options.creation == .careful
            ? try createCarefully() : try createOptimistically(portion)
    }

    private func creationFields(isComplete: Bool) -> HTTPFields {
        var fields = options.fields
        version.name(in: &fields)
        version.mark(isComplete, in: &fields)
        if let length = content.length { fields[.uploadLength] = String(length) }
        return fields
    }

    private func createCarefully() throws(TransferError) -> Answer? {
        let purpose = "the creation by \(options.method.rawValue) \(target.text)"
        let result = exchange.send(
            options.method,
            target,
            creationFields(isComplete: false),
            heard: { [self] in hear($0, from: target, creates: true) }
        )
        guard let (answer, read) = try answered(result, purpose) else { return nil }
        switch Verdict(of: read, to: .carefulCreation) {
        case .final: return answer
        case .acknowledged:
            limit(by: read)
            try take(location: read.location)
            offset = read.offset ?? 0
        case .unknownVersion:
            guard let common = WireVersion(WireVersion.common), version != common else {
                throw refusal(answer, purpose)
            }
            version = common
        case .later: try wait(purpose, answer, read.retryAfter)
        case .unsupported:
            throw TransferError(
                .unsupported,
                "\(purpose) was taken for the whole upload: this server does no resumable uploads; "
                    + "undo what it made of an empty body, and upload with creation .plain",
                answer: answer
            )
        default: throw refusal(answer, purpose)
        }
        return nil
    }

    private func createOptimistically(_ portion: Portion) throws(TransferError) -> Answer? {
        let purpose = "\(options.method.rawValue) \(target.text)"
        let result = exchange.send(
            options.method,
            target,
            creationFields(isComplete: portion.isLast),
            content: give(portion, from: 0),
            heard: { [self] in hear($0, from: target, creates: true) }
        )
        if resource == nil { try checkRepeatable(result, portion, purpose) }
        guard let (answer, read) = try answered(result, purpose) else { return nil }
        limit(by: read)
        switch Verdict(of: read, to: .optimisticCreation(isComplete: portion.isLast)) {
        case .final: return answer
        case .acknowledged(let told):
            if resource == nil { try take(location: read.location) }
            acknowledge(told, upTo: portion.count, from: 0)
        case .tooLarge: maxAppend = smaller(than: portion.count)
        case .later: try wait(purpose, answer, read.retryAfter)
        default: throw refusal(answer, purpose)
        }
        return nil
    }

    private func sendPlain(_ portion: Portion) throws(TransferError) -> Answer? {
        let purpose = "\(options.method.rawValue) \(target.text)"
        guard portion.isLast else {
            throw error(
                .invalid,
                "\(purpose): a stream is not sent by one ordinary request; use another creation"
            )
        }
        let result = exchange.send(
            options.method,
            target,
            options.fields,
            content: give(portion, from: 0)
        )
        try checkRepeatable(result, portion, purpose)
        guard let (answer, read) = try answered(result, purpose) else { return nil }
        guard Verdict(of: read, to: .plain) == .later else { return answer }
        try wait(purpose, answer, read.retryAfter)
        return nil
    }

    /// Throws where everything may have arrived, nobody answered, and sending it again is not safe.
    private func checkRepeatable(
        _ result: ExchangeResult,
        _ portion: Portion,
        _ purpose: String
    ) throws(TransferError) {
        guard result.head == nil, result.wasBegun, portion.isLast,
            result.uploaded >= portion.count, !isRepeatable
        else { return }
        throw error(
            .unknownOutcome,
            "\(purpose) was sent whole, and no answer came: \(result.fault?.reason ?? ""); look "
                + "whether the server has it before you send it again"
        )
    }

    private var isRepeatable: Bool {
        options.method.isIdempotent || options.fields.contains(.idempotencyKey)
    }

    /// Takes the upload resource's URL.
    private func take(location: String?) throws(TransferError) {
        guard let location, let url = target.resolved(location) else {
            throw error(
                .unsupported,
                "\(target.text) made an upload resource with the Location "
                    + "\"\(location ?? "")\", which is no URL; look at the server"
            )
        }
        guard url.origin == target.origin || options.allowsOtherOrigin else {
            throw error(
                .refused,
                "\(target.text) made an upload resource at \(url.text), which is another origin; "
                    + "set allowsOtherOrigin if that is right"
            )
        }
        name(url)
    }

    private func name(_ url: URLText) {
        guard url != resource else { return }
        resource = url
        isFinished = false
        setToken(
            ResumeToken(
                url: url.text,
                target: target.text,
                length: content.length,
                interopVersion: version.named,
                fingerprint: content.fingerprint
            )
        )
    }

    private func setToken(_ token: ResumeToken?) {
        guard token != self.token else { return }
        self.token = token
        if let token { tell(.resumable(token)) }
    }

    /// Hears an interim response of a request that sends from `offset` on.
    private func hear(_ head: ResponseHead, from base: URLText, creates: Bool) {
        guard version.isOwn(head) else { return }
        let read = UploadAnswer(head)
        limit(by: read)
        if creates, let url = read.location.flatMap(base.resolved(_:)),
            url.origin == target.origin || options.allowsOtherOrigin
        {
            name(url)
        }
        if resource != nil, let told = read.offset { progressed(to: told) }
    }

    private func limit(by answer: UploadAnswer) {
        if let most = answer.maxAppend { maxAppend = most }
        if let least = answer.minAppend { minAppend = least }
    }

    /// The limit that the server told, where it is one.
    private func smaller(than count: Int64) -> Int64 { min(maxAppend ?? count, max(1, count / 2)) }

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
            return try goneAnew(answer, purpose)
        case .later: try wait(purpose, answer, read.retryAfter)
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

    private func append(to resource: URLText, at offset: Int64) throws(TransferError) -> Answer? {
        var portion = try portion(from: offset)
        while !portion.isLast, portion.count < min(minAppend, Int64(options.window) / 2) {
            control.wait(.milliseconds(200))
            portion = try self.portion(from: offset)
        }
        let purpose = "the append at \(offset) by PATCH \(resource.text)"
        var fields = options.fields.withoutRepresentation
        version.name(in: &fields)
        version.mark(portion.isLast, in: &fields)
        version.markAppend(at: offset, in: &fields)
        if portion.isLast, token?.length == nil {
            fields[.uploadLength] = String(offset + portion.count)
        }
        let result = exchange.send(
            .patch,
            resource,
            fields,
            content: give(portion, from: offset),
            heard: { [self] in hear($0, from: resource, creates: false) }
        )
        guard let (answer, read) = try answered(result, purpose) else { return nil }
        limit(by: read)
        let verdict = Verdict(of: read, to: .append(isComplete: portion.isLast))
        switch verdict {
        case .final: return answer
        case .acknowledged(let told):
            acknowledge(told, upTo: offset + portion.count, from: offset)
        case .conflict(let told) where !isFinished:
            // The same offset again, or none: it has to be asked, and not at once.
            self.offset = nil
            if told == nil || told == offset { try wait(purpose, answer, read.retryAfter) }
        case .gone where !isFinished:
            return try goneAnew(answer, purpose)
        case .tooLarge where portion.count > 1:
            maxAppend = smaller(than: portion.count)
        case .later:
            self.offset = nil
            try wait(purpose, answer, read.retryAfter)
        default:
            // The server said that it has everything, and gives its answer no more.
            guard isFinished, portion.count == 0 else { throw refusal(answer, purpose) }
            return Answer(status: .noContent, isLost: true)
        }
        return nil
    }

    private func acknowledge(_ told: Int64?, upTo end: Int64, from start: Int64) {
        let present = told ?? end
        offset = (start...end).contains(present) ? present : nil
        if let offset { progressed(to: offset) }
    }

    private func goneAnew(_ answer: Answer, _ purpose: String) throws(TransferError) -> Answer? {
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
        if beginnings > 1 { try wait(purpose, answer, nil) }
        tell(.begunAnew(reason: reason))
        return nil
    }

    // MARK: Content

    private func portion(from offset: Int64) throws(TransferError) -> Portion {
        do throws(ContentFault) {
            content.release(upTo: offset)
            let portion = try content.portion(from: offset, limit: maxAppend) {
                control.isStopped
            }
            if let portion { return portion }
        } catch {
            throw self.error(error.kind, "the upload to \(target.text): \(error.reason)")
        }
        try checkWish()
        throw error(.paused, "the upload to \(target.text) was stopped")
    }

    /// Content for one request; nil: none.
    private func give(_ portion: Portion, from offset: Int64) -> ServerExchange.Content? {
        guard portion.count > 0 else {
            if portion.isLast { lastByteLeaves() }
            return nil
        }
        var given: Int64 = 0
        return ServerExchange.Content(length: portion.count) { [self] buffer in
            // libcurl asks once more at the end.
            guard !buffer.isEmpty else { return true }
            if portion.isLast, given + Int64(buffer.count) == portion.count { lastByteLeaves() }
            do throws(ContentFault) {
                try content.read(into: buffer, at: offset + given)
            } catch {
                contentFault = error
                return false
            }
            given += Int64(buffer.count)
            if nextProgress.hasPassed { tellProgress(sent: offset + given) }
            return true
        }
    }

    /// From here on the server may have the upload whole: whoever keeps the token has to know.
    private func lastByteLeaves() {
        guard var token, !token.mayBeComplete else { return }
        token.mayBeComplete = true
        token.length = content.length
        setToken(token)
    }

    private func progressed(to offset: Int64) {
        guard offset > received else { return }
        received = offset
        content.release(upTo: offset)
        patience.progressed()
        tellProgress(sent: offset)
    }

    private func tellProgress(sent: Int64) {
        nextProgress = .after(Self.progressInterval)
        tell(
            .progress(
                Progress(received: received, sent: max(sent, received), total: content.length)
            )
        )
    }

    // MARK: Ends

    private func checkWish() throws(TransferError) {
        switch control.wish {
        case .run: return
        case .pause: throw error(.paused, "the upload to \(target.text) was paused")
        case .cancel: throw error(.cancelled, "the upload to \(target.text) was cancelled")
        }
    }

    /// The answer and what it says; nil: it is asked again.
    private func answered(
        _ result: ExchangeResult,
        _ purpose: String
    ) throws(TransferError) -> (Answer, UploadAnswer)? {
        if let fault = contentFault {
            contentFault = nil
            throw error(fault.kind, "\(purpose): \(fault.reason)")
        }
        if let answer = result.answer, let head = result.head {
            return (answer, UploadAnswer(head))
        }
        try checkWish()
        let fault = result.fault ?? ClientFault(.noAnswer, "no answer")
        switch fault.kind {
        case .notTried: throw error(.invalid, "\(purpose) was not tried: \(fault.reason)")
        case .noTLS:
            throw error(
                .untrusted,
                "\(purpose): no TLS that can be trusted: \(fault.reason); look at the server's "
                    + "certificate and the authorities"
            )
        default: break
        }
        offset = nil
        try wait("\(purpose): \(fault.reason)", nil, nil)
        return nil
    }

    private func wait(
        _ purpose: String,
        _ answer: Answer?,
        _ told: Duration?
    ) throws(TransferError) {
        let reason = answer.map { "\(purpose) was answered with \(sentence($0))" } ?? purpose
        guard let pause = patience.next(told) else {
            throw error(
                .later,
                "\(reason); it did not go on for \(options.connection.retryFor), try again later",
                answer
            )
        }
        tell(.waiting(pause, reason: reason))
        control.wait(pause)
        try checkWish()
    }

    private func refusal(_ answer: Answer, _ purpose: String) -> TransferError {
        error(.refused, "\(purpose) was refused with \(sentence(answer))", answer)
    }

    private func sentence(_ answer: Answer) -> String {
        let phrase = answer.status.reasonPhrase
        let problem = ProblemDocument.sentence(answer.fields, answer.content)
        return "\(answer.status.code)\(phrase.isEmpty ? "" : " \(phrase)")"
            + (problem.map { ": \($0)" } ?? "")
    }

    private func error(
        _ kind: TransferError.Kind,
        _ reason: String,
        _ answer: Answer? = nil
    ) -> TransferError {
        TransferError(kind, reason, answer: answer, token: token)
    }
}
