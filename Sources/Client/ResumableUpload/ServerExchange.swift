// The requests of one transfer to its server, over an idle connection of its session if possible.
//
// The invariant: credentials and the client's own fields are sent only to the origins that the transfer allows.

import HTTPTypes
import SpoolgateCurl
import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol

struct ExchangeResult {
    /// The final response's head; nil if none has arrived.
    var head: ResponseHead?
    /// The reason if the response is missing or incomplete; nil if it is complete.
    var fault: ClientFault?
    var retryAfter: Duration?
    /// The start of the response's content, up to the limit.
    var content: [UInt8]
    /// Whether `content` is only the start of the response's content.
    var isCut: Bool
    /// Whether a part of the request may have been sent.
    var wasBegun: Bool
    /// The number of content bytes sent.
    var uploaded: Int64

    var responded: (response: Transfer.Response, read: ServerResponse)? {
        head.map { head in
            (
                Transfer.Response(
                    status: head.status,
                    fields: head.fields,
                    content: content,
                    isCut: isCut
                ),
                ServerResponse(head, retryAfter: retryAfter)
            )
        }
    }
}

extension Transfer.Response {
    /// Returns the resolved `Location`; nil if it is missing or invalid.
    func location(from url: URLText) -> URLText? {
        fields.value(of: .location).flatMap { url.resolved($0) }
    }

    /// Describes the target of a redirect and the remedy, as the end of a sentence.
    func redirection(from url: URLText) -> String {
        guard let place = location(from: url) else {
            return "without a target: it has no Location that is a URL; check the server"
        }
        return
            "to \(place.text); redirects are not followed: use that URL if it is correct"
    }
}

/// Used by the thread of one transfer.
final class ServerExchange {
    /// The maximum number of bytes kept of a response.
    private let responseLimit: Int
    private let options: Transfer.Connection
    private let control: TransferControl
    private let connections: ConnectionPool
    private var kept: [UInt8] = []
    private var isCut = false

    init(
        _ options: Transfer.Connection,
        responseLimit: Int,
        control: TransferControl,
        connections: ConnectionPool
    ) {
        self.options = options
        self.responseLimit = responseLimit
        self.control = control
        self.connections = connections
    }

    /// Sends one request with the credentials.
    ///
    /// `received` receives each interim response. `sink` receives the content piece by piece, and returns false to end the
    /// request. Without `sink`, the result keeps the content.
    func send(
        _ method: HTTPRequest.Method,
        _ url: URLText,
        _ fields: HTTPFields,
        content: ClientContent? = nil,
        received: @escaping (ResponseHead) -> Void = { _ in },
        sink: ((ResponseHead, UnsafeRawBufferPointer) -> Bool)? = nil
    ) -> ExchangeResult {
        var request = ClientRequest(method, url.text, fields: fields)
        request.version = options.version == .http2 && url.isSecure ? .http2 : .http1
        request.timeout = options.stall
        request.responseTimeout = options.responseTimeout
        request.rateLimit = options.rateLimit
        request.tls.authorities = options.certificateAuthority
        request.tls.certificate = options.clientCertificate
        request.tls.key = options.clientKey
        request.usesProxies = options.usesProxies && options.socket == nil
        request.socket = options.socket
        authorize(&request)
        request.content = content
        request.received = { interim in
            received(interim.head)
            return true
        }
        (kept, isCut) = ([], false)
        request.sink = sink ?? { [self] _, bytes in keep(bytes) }
        let used = connections.take()
        let transfer = ClientTransfer(request, over: used) { [control] in control.isStopped }
        transfer.run()
        // A failed transfer leaves state in the handle that makes the next one fail.
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
        let room = responseLimit - kept.count
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
    /// The fields for every request of an upload: all except those about content, representation and conditions.
    var withoutRepresentation: HTTPFields {
        filter { field in
            let name = field.name.canonicalName
            let isDropped = ["content-", "repr-", "want-", "if-", "upload-"]
                .contains { name.hasPrefix($0) }
            return !isDropped && name != "idempotency-key" && name != "expect"
        }
    }
}
