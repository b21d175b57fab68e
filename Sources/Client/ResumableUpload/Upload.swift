// An upload, as a program sees it.
//
// What it shares with a download is a `Transfer`; what one run does stands in UploadRun.swift.

import SpoolgateCurl

/// An upload that survives cuts.
///
/// ```swift
/// var options = Upload.Options()
/// options.fields[.contentType] = "application/x-tar"
/// let upload = Upload(.file("/var/backups/today.tar"), to: "https://example.org/upload", options: options)
/// let answer = try await upload.run()
/// ```
public final class Upload: Sendable {
    /// What happens during an upload.
    public typealias Event = Transfer.Event<Token>

    private let options: Upload.Options
    private let transfer: TransferHandle<Upload.Token>

    /// A stream of what happens from now on; the newest 256 events are kept for its reader.
    ///
    /// It ends with the run under way or, if there is none, with the next one; at once if the last run ended for good.
    public var events: AsyncStream<Upload.Event> { transfer.events }

    /// Makes an upload; nothing is sent before it runs.
    ///
    /// - Parameters:
    ///   - body: what is sent.
    ///   - url: where to; absolute, without user and password.
    ///   - options: how.
    ///   - onEvent: told of what happens, on the upload's thread, which waits for it meanwhile: a token that it
    ///     wrote to a disk is there before the upload goes on.
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

    /// The upload that a token belongs to; where the upload resource is gone it begins anew.
    ///
    /// - Parameters:
    ///   - token: from an event, an error or `pause`, of this process or another one.
    ///   - body: the same body; a stream from its beginning.
    ///   - options: as for the first time.
    ///   - onEvent: as for the first time.
    /// - Returns: an upload that goes on when it runs.
    public static func resume(
        from token: Upload.Token,
        body: Upload.Body,
        options: Upload.Options = Upload.Options(),
        onEvent: (@Sendable (Upload.Event) -> Void)? = nil
    ) -> Upload {
        Upload(body, token.target, token, options, in: nil, onEvent)
    }

    /// What the upload can be resumed with now; nil: the server has nothing, or all.
    public var token: Upload.Token? { transfer.token }

    /// Sends the body and waits for the final response.
    ///
    /// Cancelling the task ends the run as `pause` does; `token` says where to go on.
    ///
    /// - Returns: the final response, its status below 400.
    /// - Throws: `TransferError`, why there is none, with the token to go on with; `CancellationError` if the task was
    ///   cancelled.
    public func run() async throws -> Transfer.Answer { try await transfer.run() }

    /// As `run`, on the calling thread, which it blocks.
    ///
    /// Not from a task: those have few threads, and a stream's pieces may need the one that is blocked.
    ///
    /// - Returns: the final response, its status below 400.
    /// - Throws: why there is none; its token says where to go on.
    public func perform() throws(TransferError) -> Transfer.Answer { try transfer.perform() }

    /// As `perform`, for an owner that hears of its own end on another thread.
    ///
    /// - Parameter isStopped: asked once when the run has begun: from then on `requestPause` counts.
    /// - Returns: the final response, its status below 400.
    /// - Throws: why there is none; its token says where to go on.
    package func perform(unless isStopped: () -> Bool) throws(TransferError) -> Transfer.Answer {
        try transfer.perform(unless: isStopped)
    }

    /// Ends the run under way as soon as it can, and gives what to resume with; `run` throws `paused`.
    ///
    /// Without a run it only gives the token.
    ///
    /// - Returns: the token; nil where the server has nothing.
    public func pause() async -> Upload.Token? { await transfer.pause() }

    /// As `pause`, without waiting.
    public func requestPause() { transfer.control.ask(.pause) }

    /// Ends the run and cancels the upload on the server; `run` throws `cancelled`.
    ///
    /// - Throws: where the server could not be told.
    public func cancel() async throws(TransferError) {
        transfer.control.ask(.cancel)
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

    /// Cancels an upload on its server, on the calling thread, which it blocks.
    ///
    /// An upload that is gone already is fine.
    ///
    /// - Throws: where the server refuses, or could not be reached for `retryFor`.
    public static func remove(
        _ token: Upload.Token,
        options: Upload.Options = Upload.Options()
    ) throws(TransferError) {
        try Cancellation(token, options, over: ConnectionPool()).run()
    }

    /// Whether the server says that it has not got the whole body, so that it cannot have used it.
    ///
    /// On the calling thread, which it blocks.
    ///
    /// - Throws: where the server could not be reached for `retryFor`.
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
    ) throws(TransferError) -> Transfer.Answer {
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
            tell: transfer.tell
        )
        do throws(TransferError) {
            return try run.run()
        } catch {
            transfer.set(error.token)
            throw error
        }
    }
}
