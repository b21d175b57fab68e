// An upload, as a program sees it.
//
// What it shares with a download is a `Transfer`; what one run does stands in UploadRun.swift.

/// An upload that survives cuts.
///
/// ```swift
/// var options = UploadOptions()
/// options.fields[.contentType] = "application/x-tar"
/// let upload = Upload(.file("/var/backups/today.tar"), to: "https://example.org/upload", options: options)
/// let answer = try await upload.run()
/// ```
public final class Upload: Sendable {
    private let options: UploadOptions
    private let transfer: Transfer<ResumeToken>

    /// What happens, for one reader; the newest 256 events are kept for it.
    public var events: AsyncStream<UploadEvent> { transfer.events }

    /// Makes an upload; nothing is sent before it runs.
    ///
    /// - Parameters:
    ///   - body: what is sent.
    ///   - url: where to; absolute, without user and password.
    ///   - options: how.
    ///   - onEvent: told of what happens, on the upload's thread, which waits for it meanwhile: a token that it
    ///     wrote to a disk is there before the upload goes on.
    public convenience init(
        _ body: Body,
        to url: String,
        options: UploadOptions = UploadOptions(),
        onEvent: (@Sendable (UploadEvent) -> Void)? = nil
    ) {
        self.init(body, url, nil, options, onEvent)
    }

    private init(
        _ body: Body,
        _ url: String,
        _ token: ResumeToken?,
        _ options: UploadOptions,
        _ onEvent: (@Sendable (UploadEvent) -> Void)?
    ) {
        self.options = options
        transfer = Transfer("the upload to \(url)", token, onEvent) {
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
        from token: ResumeToken,
        body: Body,
        options: UploadOptions = UploadOptions(),
        onEvent: (@Sendable (UploadEvent) -> Void)? = nil
    ) -> Upload {
        Upload(body, token.target, token, options, onEvent)
    }

    /// What the upload can be resumed with now; nil: the server has nothing, or all.
    public var token: ResumeToken? { transfer.token }

    /// Sends the body and waits for the final response.
    ///
    /// Cancelling the task is as `pause`.
    ///
    /// - Returns: the final response, its status below 400.
    /// - Throws: why there is none; its token says where to go on.
    public func run() async throws(TransferError) -> Answer { try await transfer.run() }

    /// As `run`, on the calling thread, which it blocks.
    ///
    /// Not from a task: those have few threads, and a stream's pieces may need the one that is blocked.
    public func perform() throws(TransferError) -> Answer { try transfer.perform() }

    /// Ends the run as soon as it can, and gives what to resume with; `run` throws `paused`.
    ///
    /// - Returns: the token; nil where the server has nothing.
    public func pause() async -> ResumeToken? { await transfer.pause() }

    /// As `pause`, without waiting.
    public func requestPause() { transfer.control.ask(.pause) }

    /// Ends the run and cancels the upload on the server; `run` throws `cancelled`.
    ///
    /// - Throws: where the server could not be told.
    public func cancel() async throws(TransferError) {
        transfer.control.ask(.cancel)
        await transfer.control.ended()
        guard let token else { return }
        let options = options
        let result = await TransferControl.onThread("cancel") {
            Result { () throws(TransferError) in try Self.remove(token, options: options) }
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
        _ token: ResumeToken,
        options: UploadOptions = UploadOptions()
    ) throws(TransferError) {
        try Cancellation(token, options).run()
    }

    private static func perform(
        _ transfer: Transfer<ResumeToken>,
        _ body: Body,
        _ url: String,
        _ options: UploadOptions
    ) throws(TransferError) -> Answer {
        let token = transfer.token
        guard let target = URLText(url), token == nil || URLText(token?.url ?? "") != nil else {
            throw TransferError(
                .invalid,
                "\(url) is no URL to upload to; give one with http:// or https:// and without a user"
            )
        }
        guard let version = WireVersion(token.map(\.interopVersion) ?? options.interopVersion)
        else {
            throw TransferError(
                .invalid,
                "the interop version \(options.interopVersion ?? 0) is not spoken; give one of 3 to 10"
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
