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
            switch Verdict(of: answer, to: .cancellation) {
            case .final, .gone: return
            case .later: try wait(reason, result.answer, answer.retryAfter)
            default: throw error(.refused, "\(reason); the upload stays", result.answer)
            }
        }
    }

    /// Nobody listens.
    func tellWaiting(_ pause: Duration, reason: String) {}
}
