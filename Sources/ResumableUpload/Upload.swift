// An upload, as a program sees it.
//
// The work is a blocking run (UploadRun.swift) on one thread; `async` is only the surface. The invariant: one run at
// a time, and what `token` says is enough to go on.

import HTTPTypes
import Posix
import UploadProtocol

/// An upload that survives cuts.
///
/// ```swift
/// var options = UploadOptions()
/// options.fields[.contentType] = "application/x-tar"
/// let upload = Upload(.file("/var/backups/today.tar"), to: "https://example.org/upload", options: options)
/// let answer = try await upload.run()
/// ```
public final class Upload: Sendable {
    private let body: Body
    private let url: String
    private let options: UploadOptions
    private let control = TransferControl()
    private let current: Monitor<ResumeToken?>
    private let onEvent: (@Sendable (UploadEvent) -> Void)?
    private let sink: AsyncStream<UploadEvent>.Continuation

    /// What happens, for one reader; the newest 256 events are kept for it.
    public let events: AsyncStream<UploadEvent>

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
        self.body = body
        self.url = url
        self.options = options
        self.onEvent = onEvent
        current = Monitor(token)
        (events, sink) = AsyncStream.makeStream(bufferingPolicy: .bufferingNewest(256))
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
    public var token: ResumeToken? { current.update { $0 } }

    /// Sends the body and waits for the final response.
    ///
    /// Cancelling the task is as `pause`.
    ///
    /// - Returns: the final response, its status below 400.
    /// - Throws: why there is none; its token says where to go on.
    public func run() async throws(TransferError) -> Answer {
        let result = await withTaskCancellationHandler {
            await TransferControl.onThread("upload") { self.performed() }
        } onCancel: {
            requestPause()
        }
        return try result.get()
    }

    /// As `run`, on the calling thread, which it blocks.
    ///
    /// Not from a task: those have few threads, and a stream's pieces may need the one that is blocked.
    public func perform() throws(TransferError) -> Answer { try performed().get() }

    /// Ends the run as soon as it can, and gives what to resume with; `run` throws `paused`.
    ///
    /// - Returns: the token; nil where the server has nothing.
    public func pause() async -> ResumeToken? {
        requestPause()
        await control.ended()
        return token
    }

    /// As `pause`, without waiting.
    public func requestPause() { control.ask(.pause) }

    /// Ends the run and cancels the upload on the server; `run` throws `cancelled`.
    ///
    /// - Throws: where the server could not be told.
    public func cancel() async throws(TransferError) {
        control.ask(.cancel)
        await control.ended()
        guard let token else { return }
        let options = options
        let result = await TransferControl.onThread("cancel") {
            Result { () throws(TransferError) in try Self.remove(token, options: options) }
        }
        try result.get()
        current.update { $0 = nil }
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

    private func performed() -> Result<Answer, TransferError> {
        let result = control.run { Result { () throws(TransferError) in try runOnce() } }
        return result ?? .failure(TransferError(.invalid, "the upload to \(url) runs already"))
    }

    private func runOnce() throws(TransferError) -> Answer {
        let token = self.token
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
            throw TransferError(error.kind, "the upload to \(url): \(error.reason)", token: token)
        }
        defer { content.close() }
        let run = UploadRun(
            content,
            to: target,
            token: token,
            version: version,
            options: options,
            control: control
        ) { [self] event in
            if case .resumable(let token) = event { current.update { $0 = token } }
            if case .begunAnew = event { current.update { $0 = nil } }
            onEvent?(event)
            sink.yield(event)
        }
        do throws(TransferError) {
            let answer = try run.run()
            current.update { $0 = nil }
            sink.finish()
            return answer
        } catch {
            let left = error.token
            current.update { $0 = left }
            if !error.mayWorkLater { sink.finish() }
            throw error
        }
    }
}
