// The public interface of an upload; UploadRun.swift has the work.

import SpoolgateCurl

/// An upload that resumes after an interruption.
///
/// ```swift
/// var options = Upload.Options()
/// options.fields[.contentType] = "application/x-tar"
/// let upload = Upload(.file("/var/backups/today.tar"), to: "https://example.org/upload", options: options)
/// let answer = try await upload.run()
/// ```
public final class Upload: Sendable {
    /// An event of an upload.
    public typealias Event = Transfer.Event<Token>

    private let options: Upload.Options
    private let transfer: TransferHandle<Upload.Token>

    /// A stream of the events from now on; the newest 256 are buffered.
    ///
    /// The stream ends with the current run or the next one, or at once if the last run succeeded or failed
    /// permanently.
    public var events: AsyncStream<Upload.Event> { transfer.events }

    /// Creates an upload; no request is sent before it runs.
    ///
    /// The URL must be absolute, without user and password. The upload's thread calls `onEvent` for each event and
    /// waits until it returns, so that `onEvent` can store a token before the upload continues.
    public convenience init(
        _ body: Upload.Body,
        to url: String,
        options: Upload.Options = Upload.Options(),
        onEvent: (@Sendable (Upload.Event) -> Void)? = nil
    ) {
        self.init(body, url, nil, options, in: nil, onEvent)
    }

    init(
        _ body: Upload.Body,
        _ url: String,
        _ token: Upload.Token?,
        _ options: Upload.Options,
        in session: TransferSession?,
        _ onEvent: (@Sendable (Upload.Event) -> Void)?
    ) {
        self.options = options
        transfer = TransferHandle("the upload to \(url)", token, in: session, onEvent) {
            (transfer) throws(TransferError) in
            try Self.perform(transfer, body, url, options)
        }
    }

    /// Creates the upload that a token belongs to.
    ///
    /// If the upload resource is gone, the upload starts again.
    ///
    /// The token can be from an event, an error or `pause`, in any process. The body and the options must be the same;
    /// a stream must start from its beginning.
    public static func resume(
        from token: Upload.Token,
        body: Upload.Body,
        options: Upload.Options = Upload.Options(),
        onEvent: (@Sendable (Upload.Event) -> Void)? = nil
    ) -> Upload {
        Upload(body, token.target, token, options, in: nil, onEvent)
    }

    /// The token to resume with; nil if the server has no content or has accepted the upload.
    public var token: Upload.Token? { transfer.token }

    /// Sends the body, and returns the final response, with a status below 400.
    ///
    /// Cancelling the task ends the run like `pause`; `token` resumes it.
    ///
    /// - Throws: `TransferError` if the upload was not accepted; `CancellationError` if the task was cancelled.
    public func run() async throws -> Transfer.Response { try await transfer.run() }

    /// Sends the body like `run`, but blocks the calling thread.
    ///
    /// Do not call this from a task, because tasks share few threads and a stream may need the blocked one.
    ///
    /// - Returns: the final response, with a status below 400.
    /// - Throws: the reason if the upload was not accepted, with the token.
    public func perform() throws(TransferError) -> Transfer.Response { try transfer.perform() }

    /// Uploads like `perform`, but also honours a request to stop that arrived before the run began.
    ///
    /// `isStopped` is called once, just after the run begins, and returns true to pause it. From then on, another
    /// thread can pause the run with `requestPause`.
    package func perform(unless isStopped: () -> Bool) throws(TransferError) -> Transfer.Response {
        try transfer.perform(unless: isStopped)
    }

    /// Ends the current run, if any, and returns the token to resume with; `run` throws `.paused`.
    ///
    /// - Returns: the token; nil if the server has no content.
    public func pause() async -> Upload.Token? { await transfer.pause() }

    /// Pauses like `pause`, without waiting.
    public func requestPause() { transfer.control.request(.pause) }

    /// Ends the run and cancels the upload on the server; `run` throws `.cancelled`.
    ///
    /// - Throws: an error if the server did not confirm the cancellation.
    public func cancel() async throws(TransferError) {
        transfer.control.request(.cancel)
        await transfer.control.ended()
        guard let token else { return }
        let (options, connections) = (options, transfer.connections)
        let result = await TransferThread.run("cancel") {
            Result { () throws(TransferError) in
                try Cancellation(token, options, over: connections).run()
            }
        }
        try result.get()
        transfer.set(nil)
    }

    /// Cancels an upload on its server, and blocks the calling thread; succeeds if the upload is already gone.
    ///
    /// - Throws: an error if the server refuses, or cannot be reached for `retryFor`.
    public static func remove(
        _ token: Upload.Token,
        options: Upload.Options = Upload.Options()
    ) throws(TransferError) {
        try Cancellation(token, options, over: ConnectionPool()).run()
    }

    /// Returns whether the server lacks a part of the body, and so cannot have accepted the upload.
    ///
    /// Blocks the thread.
    ///
    /// - Throws: an error if the server cannot be reached for `retryFor`.
    package static func isPartial(
        _ token: Upload.Token,
        options: Upload.Options
    ) throws(TransferError) -> Bool {
        try Cancellation(token, options, over: ConnectionPool()).isPartial()
    }

    private static func perform(
        _ transfer: TransferHandle<Upload.Token>,
        _ body: Upload.Body,
        _ url: String,
        _ options: Upload.Options
    ) throws(TransferError) -> Transfer.Response {
        defer { body.end() }
        let token = transfer.token
        guard let target = URLText(url), token == nil || URLText(token?.url ?? "") != nil else {
            throw TransferError(
                .invalid,
                "\(url) is not a URL for an upload; use http:// or https://, without a user"
            )
        }
        guard let version = WireVersion(token.map(\.interopVersion) ?? options.interopVersion)
        else {
            throw TransferError(
                .invalid,
                "interop version \(options.interopVersion ?? 0) is not supported; use one from "
                    + "\(Upload.Options.interopVersions.lowerBound) to "
                    + "\(Upload.Options.interopVersions.upperBound)"
            )
        }
        let content: any UploadContent
        do throws(ContentFault) {
            content = try body.opened(window: options.window)
        } catch {
            throw TransferError(error.kind, "\(transfer.name): \(error.reason)", token: token)
        }
        defer { content.close() }
        let run = UploadRun(
            content,
            to: target,
            token: token,
            version: version,
            options: options,
            control: transfer.control,
            connections: transfer.connections,
            appendLimit: transfer.appendLimit,
            report: transfer.report
        )
        do throws(TransferError) {
            return try run.run()
        } catch {
            transfer.set(error.token)
            throw error
        }
    }
}
