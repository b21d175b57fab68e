// The end of an upload on its server, for a client that has its token.

import Curl
import HTTPTypes
import UploadProtocol

/// Cancels one upload.
struct Cancellation {
    private let token: ResumeToken
    private let options: UploadOptions

    init(_ token: ResumeToken, _ options: UploadOptions) {
        self.token = token
        self.options = options
    }

    /// Blocks until the server has taken it.
    func run() throws(TransferError) {
        let purpose = "the cancellation by DELETE \(token.url)"
        guard let url = URLText(token.url), let version = WireVersion(token.interopVersion) else {
            throw TransferError(.invalid, "\(purpose): the token is none", token: token)
        }
        let control = TransferControl()
        let exchange = ServerExchange(options.connection, answerLimit: 4096, control: control)
        var patience = Patience(options.connection)
        var fields = options.fields.withoutRepresentation
        version.name(in: &fields)
        while true {
            let result = exchange.send(.delete, url, fields)
            var reason = result.fault?.reason ?? "no answer"
            var told: Duration?
            if let head = result.head {
                let answer = UploadAnswer(head)
                reason = "it was answered with \(head.status.code)"
                told = answer.retryAfter
                switch Verdict(of: answer, to: .cancellation) {
                case .final, .gone: return
                case .later: break
                default:
                    throw TransferError(
                        .refused,
                        "\(purpose): \(reason); the upload stays",
                        answer: result.answer,
                        token: token
                    )
                }
            } else if let fault = result.fault, !fault.mayPass,
                [.noTLS, .notTried].contains(fault.kind)
            {
                let kind = fault.kind
                throw TransferError(
                    kind == .noTLS ? .untrusted : .invalid,
                    "\(purpose): \(reason)",
                    token: token
                )
            }
            guard let pause = patience.next(told) else {
                throw TransferError(.later, "\(purpose): \(reason); try again later", token: token)
            }
            control.wait(pause)
        }
    }
}
