// Cancels an upload on its server, by its token.

import HTTPTypes
import SpoolgateCurl
import SpoolgateUploadProtocol

/// Used by one thread, once.
final class Cancellation: TransferRun {
    private let token: Upload.Token
    private let options: Upload.Options
    private let url: URLText
    private let fields: HTTPFields
    private let exchange: ServerExchange
    let control = TransferControl()
    var patience: RetryBackoff

    var name: String { "the cancellation by DELETE \(token.url)" }
    var connection: Transfer.Connection { options.connection }
    var tokenLeft: Upload.Token? { token }

    init(
        _ token: Upload.Token,
        _ options: Upload.Options,
        over connections: ConnectionPool
    ) throws(TransferError) {
        guard let url = URLText(token.url), let version = WireVersion(token.interopVersion) else {
            let reason = "the cancellation by DELETE \(token.url): the token is invalid"
            throw TransferError(.invalid, reason, token: token)
        }
        self.token = token
        self.options = options
        self.url = url
        var fields = options.fields.withoutRepresentation
        version.name(in: &fields)
        self.fields = fields
        exchange = ServerExchange(
            options.connection,
            responseLimit: 4096,
            control: control,
            connections: connections
        )
        patience = RetryBackoff(options.connection)
    }

    /// Blocks until the server confirms the cancellation.
    func run() throws(TransferError) {
        while true {
            let (response, read) = try send(.delete)
            let reason = "\(name) returned \(read.status)"
            switch Decision(of: read, to: .cancellation, by: options.method) {
            case .final, .gone: return
            case .unconfirmed:
                if try isGone() { return }
                throw error(
                    .unsupported,
                    "\(reason), but the upload may still exist; check whether the network requires a "
                        + "login",
                    response
                )
            case .redirected:
                let place = response.location(from: url)
                throw error(
                    .redirected,
                    "\(reason)\(place.map { ", a redirect to \($0.text)" } ?? "")"
                        + "; redirects are not followed, and the upload remains",
                    response
                )
            case .later: try wait(reason, response, read.retryAfter)
            default: throw error(.refused, "\(reason); the upload remains", response)
            }
        }
    }

    /// Returns whether the server lacks a part of the body; blocks until the server has responded.
    func isPartial() throws(TransferError) -> Bool {
        while true {
            let (response, read) = try send(.head)
            switch Decision(of: read, to: .retrieval, by: options.method) {
            case .acknowledged(let offset):
                let length = token.length ?? read.length
                return read.isComplete == false && length.map { offset ?? $0 < $0 } ?? false
            case .later:
                let reason =
                    "the offset retrieval by HEAD \(url.text) returned \(read.status)"
                try wait(reason, response, read.retryAfter)
            default: return false
            }
        }
    }

    private func isGone() throws(TransferError) -> Bool {
        while true {
            let (response, read) = try send(.head)
            guard Decision(of: read, to: .retrieval, by: options.method) == .later else {
                return [404, 410].contains(read.status)
            }
            let reason = "\(name): the check by HEAD returned \(read.status)"
            try wait(reason, response, read.retryAfter)
        }
    }

    /// Repeats a request until a response arrives.
    private func send(
        _ method: HTTPRequest.Method
    ) throws(TransferError) -> (Transfer.Response, ServerResponse) {
        while true {
            let result = exchange.send(method, url, fields)
            if let responded = result.responded { return responded }
            try wait(after: result.fault, name)
        }
    }

    /// A cancellation reports no events.
    func reportWaiting(_ pause: Duration, reason: String) {}
}
