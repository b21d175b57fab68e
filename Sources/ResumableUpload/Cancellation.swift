// The end of an upload on its server, for a client that has its token.

import Curl
import HTTPTypes
import UploadProtocol

/// Cancels one upload.
///
/// Used by one thread, once.
final class Cancellation: TransferRun {
    private let token: ResumeToken
    private let options: UploadOptions
    let control = TransferControl()
    var patience: Patience

    var name: String { "the cancellation by DELETE \(token.url)" }
    var connection: ConnectionOptions { options.connection }
    var tokenLeft: ResumeToken? { token }

    init(_ token: ResumeToken, _ options: UploadOptions) {
        self.token = token
        self.options = options
        patience = Patience(options.connection)
    }

    /// Blocks until the server has taken it.
    func run() throws(TransferError) {
        guard let url = URLText(token.url), let version = WireVersion(token.interopVersion) else {
            throw error(.invalid, "\(name): the token is none")
        }
        let exchange = ServerExchange(connection, answerLimit: 4096, control: control)
        var fields = options.fields.withoutRepresentation
        version.name(in: &fields)
        while true {
            let result = exchange.send(.delete, url, fields)
            guard let head = result.head else {
                try wait(after: result.fault, name)
                continue
            }
            let answer = UploadAnswer(head, retryAfter: result.retryAfter)
            let reason = "\(name) was answered with \(head.status.code)"
            switch Verdict(of: answer, to: .cancellation, by: options.method) {
            case .final, .gone: return
            case .unconfirmed:
                if try isGone(url, by: exchange, fields) { return }
                throw error(
                    .unsupported,
                    "\(reason), and nothing shows that the upload is gone; look whether the network "
                        + "wants a login",
                    result.answer
                )
            case .redirected:
                let place = head.fields.value(of: .location).flatMap { url.resolved($0) }
                throw error(
                    .redirected,
                    "\(reason)\(place.map { " to \($0.text)" } ?? "")"
                        + "; redirects are not followed, and the upload stays",
                    result.answer
                )
            case .later: try wait(reason, result.answer, answer.retryAfter)
            default: throw error(.refused, "\(reason); the upload stays", result.answer)
            }
        }
    }

    /// Whether the upload resource is not there any more.
    private func isGone(
        _ url: URLText,
        by exchange: ServerExchange,
        _ fields: HTTPFields
    ) throws(TransferError) -> Bool {
        while true {
            let result = exchange.send(.head, url, fields)
            guard let head = result.head else {
                try wait(after: result.fault, name)
                continue
            }
            let answer = UploadAnswer(head, retryAfter: result.retryAfter)
            guard Verdict(of: answer, to: .retrieval, by: options.method) == .later else {
                return [404, 410].contains(head.status.code)
            }
            let reason = "\(name): the look at what is left was answered with \(head.status.code)"
            try wait(reason, result.answer, answer.retryAfter)
        }
    }

    /// Nobody listens.
    func tellWaiting(_ pause: Duration, reason: String) {}
}
