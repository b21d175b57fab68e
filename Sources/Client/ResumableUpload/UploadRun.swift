// One run of an upload.
//
// The run creates the upload resource or retrieves its offset, then appends until a response is final; Decision.swift
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
    var openAppends = OpenAppends.unknown
    /// Whether the server has reported the upload as complete.
    var isFinished = false
    var beginnings = 0
    var patience: RetryBackoff
    var nextProgress = Deadline.after(.zero)
    var contentFault: ContentFault?
    /// A success without upload fields, to an append of the bytes from `start` up to `end`; the upload resource must
    /// confirm it.
    var unconfirmed: (response: Transfer.Response, start: Int64, end: Int64)?
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
        report: @escaping (Upload.Event) -> Void
    ) {
        self.content = content
        self.target = target
        self.token = token
        resource = token.flatMap { URLText($0.url) }
        self.version = version
        self.options = options
        self.control = control
        onEvent = report
        self.appendLimit = appendLimit
        if let maximum = options.maximumAppend { appendLimit.begin(at: maximum) }
        maxAppend = appendLimit.bytes
        exchange = ServerExchange(
            options.connection,
            responseLimit: options.responseLimit,
            control: control,
            connections: connections
        )
        patience = RetryBackoff(options.connection)
    }

    func run() throws(TransferError) -> Transfer.Response {
        try checkToken()
        while true {
            if let response = try step() { return try judged(response) }
        }
    }

    private func step() throws(TransferError) -> Transfer.Response? {
        try checkWish()
        guard let resource else { return try begin() }
        guard let offset else { return try retrieve(resource) }
        return try append(to: resource, at: offset)
    }

    /// Returns the response; throws if the status is 400 or above.
    private func judged(_ response: Transfer.Response) throws(TransferError) -> Transfer.Response {
        guard response.status.code >= 400 else {
            var response = response
            if (300..<400).contains(response.status.code) {
                response.place = response.location(from: target)?.text
            }
            // A progress bar must be full at the end.
            if let length = content.length ?? token?.length { reportWhole(length) }
            return response
        }
        token = nil
        throw refusal(response, "\(options.method.rawValue) \(target.text)")
    }

    private func checkToken() throws(TransferError) {
        if let stated = token?.fingerprint, let present = content.fingerprint, stated != present {
            throw error(.changed, "the file has changed since \(name) began; start again")
        }
        if let stated = token?.length, let present = content.length, stated != present {
            throw error(
                .changed,
                "the body has \(present) bytes, but \(name) began with \(stated); start again"
            )
        }
    }

    // MARK: Resuming

    private func retrieve(_ resource: URLText) throws(TransferError) -> Transfer.Response? {
        let purpose = "the offset retrieval by HEAD \(resource.text)"
        var fields = options.fields.withoutRepresentation
        version.name(in: &fields)
        let result = exchange.send(.head, resource, fields)
        guard let (response, read) = try responded(result, purpose) else { return nil }
        limit(by: read)
        let decision = Decision(of: read, to: .retrieval, by: options.method)
        if decision == .later {
            try wait(purpose, response, read)
            return nil
        }
        let pending = unconfirmed
        unconfirmed = nil
        switch decision {
        case .final: return response
        case .acknowledged(let stated):
            try resume(at: stated ?? 0, read, purpose)
            guard let pending else { return nil }
            let isTaken = read.isComplete ?? (offset == pending.end)
            if isTaken, isWhole(pending.end) { return pending.response }
            // The success did not come from the server of the upload.
            if offset ?? 0 <= pending.start { try wait(purpose, response, read) }
        case .gone:
            // A server may forget an upload with its final response.
            if let pending, isWhole(pending.end) { return pending.response }
            return try goneAnew(response, read, purpose)
        case .unconfirmed:
            throw error(
                .unsupported,
                "\(purpose) returned \(sentence(response)), without an Upload-Offset: this is not the "
                    + "upload server; check the URL, and whether the network requires a login",
                response
            )
        case .redirected: throw redirected(response, from: resource, purpose)
        default: throw refusal(response, purpose)
        }
        return nil
    }

    private func resume(
        at stated: Int64,
        _ response: ServerResponse,
        _ purpose: String
    ) throws(TransferError) {
        if let length = content.length, stated > length || response.length ?? length != length {
            throw error(
                .changed,
                "\(purpose): the server has \(stated) of \(response.length ?? length) bytes, but the "
                    + "body has \(length); start again"
            )
        }
        guard stated >= received, content.canBeRead(from: stated) else {
            throw error(
                .gone,
                "\(purpose): the server lost acknowledged bytes: it has \(stated) of \(received); "
                    + "start again"
            )
        }
        offset = stated
        isFinished = response.isComplete == true
        progressed(to: stated)
        if var token, token.mayBeComplete, !isFinished, stated < content.length ?? .max {
            token.mayBeComplete = false
            setToken(token)
        }
    }

    private func isWhole(_ end: Int64) -> Bool {
        (content.length ?? token?.length).map { $0 == end } ?? (token?.mayBeComplete ?? false)
    }

    func goneAnew(
        _ response: Transfer.Response,
        _ read: ServerResponse,
        _ purpose: String
    ) throws(TransferError) -> Transfer.Response? {
        let reason = "\(purpose): the upload resource is gone (\(response.status.code))"
        // The retrieval's status says only that the final response is gone, not that the upload was refused.
        if isFinished { return Transfer.Response(status: .noContent, isLost: true) }
        if token?.mayBeComplete ?? false, !isRepeatable {
            throw error(
                .unknownOutcome,
                "\(reason), but everything was sent; check whether the server has it before you "
                    + "send it again",
                response
            )
        }
        guard content.canBeRead(from: 0) else {
            throw error(
                .gone,
                "\(reason), and the beginning of the stream is no longer available; start again",
                response
            )
        }
        (resource, offset, received) = (nil, nil, 0)
        token = nil
        if beginnings > 1 { try wait(purpose, response, read) }
        report(.begunAnew(reason: reason))
        return nil
    }

    // MARK: Results

    /// Returns the response.
    ///
    /// If it is missing, waits and returns nil.
    func responded(
        _ result: ExchangeResult,
        _ purpose: String
    ) throws(TransferError) -> (Transfer.Response, ServerResponse)? {
        if let fault = contentFault {
            contentFault = nil
            throw error(fault, in: purpose)
        }
        if let responded = result.responded { return responded }
        offset = nil
        try wait(after: result.fault, purpose)
        return nil
    }

    func wait(_ purpose: String, _ response: Transfer.Response, _ read: ServerResponse)
        throws(TransferError)
    {
        try wait("\(purpose) returned \(sentence(response))", response, read.retryAfter)
    }

    func report(_ event: Upload.Event) {
        lastEvent = event
        onEvent(event)
    }

    func reportWaiting(_ pause: Duration, reason: String) {
        report(.waiting(pause, reason: reason))
    }

    func redirected(_ response: Transfer.Response, from url: URLText, _ purpose: String)
        -> TransferError
    {
        let place = response.redirection(from: url)
        return error(
            .redirected,
            "\(purpose) was redirected with \(sentence(response)) \(place)",
            response
        )
    }

    func refusal(_ response: Transfer.Response, _ purpose: String) -> TransferError {
        error(.refused, "\(purpose) was refused with \(sentence(response))", response)
    }

    private func sentence(_ response: Transfer.Response) -> String {
        let phrase = response.status.reasonPhrase
        let problem = ProblemDocument.sentence(response.fields, response.content)
        return "\(response.status.code)\(phrase.isEmpty ? "" : " \(phrase)")"
            + (problem.map { ": \($0)" } ?? "")
    }
}
