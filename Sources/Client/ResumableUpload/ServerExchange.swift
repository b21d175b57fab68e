// Requests of one transfer to its server, over a connection of its session if one is idle.
//
// What an answer means is said elsewhere. The invariant: credentials and the client's own fields go to the origins
// that the transfer allows, and to no other.

import HTTPTypes
import SpoolgateCurl
import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// One request and what became of it.
struct ExchangeResult {
    /// The final response's head; nil: there is none.
    var head: ResponseHead?
    /// Why there is no whole answer.
    var fault: ClientFault?
    /// For how long the answer asked to wait; nil: not at all.
    var retryAfter: Duration?
    /// The answer's content, as far as it is kept.
    var content: [UInt8]
    /// Whether there was more.
    var isCut: Bool
    /// Whether any of the request may have left.
    var wasBegun: Bool
    /// Bytes of content that left this process.
    var uploaded: Int64

    /// The answer and what it says of an upload, where there is one.
    var answered: (answer: Transfer.Answer, read: UploadAnswer)? {
        head.map { head in
            (
                Transfer.Answer(
                    status: head.status,
                    fields: head.fields,
                    content: content,
                    isCut: isCut
                ),
                UploadAnswer(head, retryAfter: retryAfter)
            )
        }
    }
}

extension Transfer.Answer {
    /// What its `Location` leads to from `url`, which was asked; nil: it has none that is a URL.
    func location(from url: URLText) -> URLText? {
        fields.value(of: .location).flatMap { url.resolved($0) }
    }

    /// Where a redirect of `url` leads, and what to do: the end of a sentence.
    func redirection(from url: URLText) -> String {
        guard let place = location(from: url) else {
            return "without a target: it has no Location that is a URL; check the server"
        }
        return
            "to \(place.text); redirects are not followed: use that URL if it is correct"
    }
}

/// The requests of one transfer.
///
/// Used by the transfer's thread.
final class ServerExchange {
    /// Most bytes kept of an answer's content.
    private let answerLimit: Int
    private let options: Transfer.Connection
    private let control: TransferControl
    /// Where connections come from and are given back to.
    private let connections: ConnectionPool
    /// What is under way, for what libcurl calls.
    private var kept: [UInt8] = []
    private var isCut = false

    init(
        _ options: Transfer.Connection,
        answerLimit: Int,
        control: TransferControl,
        connections: ConnectionPool
    ) {
        self.options = options
        self.answerLimit = answerLimit
        self.control = control
        self.connections = connections
    }

    /// Sends one request.
    ///
    /// - Parameters:
    ///   - method: the method.
    ///   - url: where to.
    ///   - fields: its fields; credentials are added.
    ///   - content: its content; nil: none.
    ///   - heard: told of each interim response.
    ///   - sink: takes the content of a response; nil: it is kept.
    /// - Returns: what became of it.
    func send(
        _ method: HTTPRequest.Method,
        _ url: URLText,
        _ fields: HTTPFields,
        content: ClientContent? = nil,
        heard: @escaping (ResponseHead) -> Void = { _ in },
        sink: ((ResponseHead, UnsafeRawBufferPointer) -> Bool)? = nil
    ) -> ExchangeResult {
        var request = ClientRequest(method, url.text, fields: fields)
        request.version = options.version == .http2 && url.isSecure ? .http2 : .http1
        request.timeout = options.stall
        request.answerTimeout = options.answerTimeout
        request.rateLimit = options.rateLimit
        request.certificateAuthority = options.certificateAuthority
        request.clientCertificate = options.clientCertificate
        request.clientKey = options.clientKey
        request.usesProxies = options.usesProxies && options.socket == nil
        request.socket = options.socket
        authorize(&request)
        request.content = content
        request.heard = { interim in
            heard(interim.head)
            return true
        }
        (kept, isCut) = ([], false)
        request.sink = sink ?? { [self] _, bytes in keep(bytes) }
        let used = connections.take()
        let transfer = ClientTransfer(request, over: used) { [control] in control.isStopped }
        transfer.run()
        // A handle whose transfer failed keeps state that breaks the next one.
        if let used, transfer.fault == nil { connections.giveBack(used) }
        return ExchangeResult(
            head: transfer.head,
            fault: transfer.fault,
            retryAfter: transfer.retryAfter,
            content: kept,
            isCut: isCut || (transfer.head != nil && transfer.fault != nil),
            wasBegun: transfer.wasBegun,
            uploaded: transfer.uploaded
        )
    }

    private func keep(_ bytes: UnsafeRawBufferPointer) -> Bool {
        let room = answerLimit - kept.count
        kept.append(contentsOf: bytes.prefix(max(0, room)))
        isCut = isCut || bytes.count > room
        return true
    }

    private func authorize(_ request: inout ClientRequest) {
        switch options.credentials {
        case .none: break
        case .basic(let user, let password):
            let pair = Base64.encode(Array("\(user):\(password)".utf8))
            request.fields[.authorization] = "Basic \(pair)"
        case .bearer(let token): request.fields[.authorization] = "Bearer \(token)"
        case .netrc(let path): request.netrc = path
        }
    }
}

extension HTTPFields {
    /// Those that go with every request of an upload: not those of its content, its representation, its conditions.
    var withoutRepresentation: HTTPFields {
        filter { field in
            let name = field.name.canonicalName
            let isDropped = ["content-", "repr-", "want-", "if-", "upload-"]
                .contains { name.hasPrefix($0) }
            return !isDropped && name != "idempotency-key" && name != "expect"
        }
    }
}
