// A download, as a program sees it.
//
// What it shares with an upload is a `Transfer`; what one run does stands in DownloadRun.swift.

/// A download that survives cuts, where the server knows ranges (RFC 9110 §14).
///
/// ```swift
/// let download = Download("https://example.org/today.tar", to: .file("/srv/films/today.tar"))
/// let answer = try await download.run()
/// ```
public final class Download: Sendable {
    /// What happens during a download.
    public typealias Event = Transfer.Event<Token>

    private let transfer: TransferHandle<Download.Token>

    /// A stream of what happens from now on; the newest 256 events are kept for its reader.
    ///
    /// It ends with the run under way or, if there is none, with the next one; at once if the last run ended for good.
    public var events: AsyncStream<Download.Event> { transfer.events }

    /// Makes a download; nothing is sent before it runs.
    ///
    /// - Parameters:
    ///   - url: what; absolute, without user and password.
    ///   - destination: where to.
    ///   - options: how.
    ///   - onEvent: told of what happens, on the download's thread, which waits for it meanwhile.
    public convenience init(
        _ url: String,
        to destination: Download.Destination,
        options: Download.Options = Download.Options(),
        onEvent: (@Sendable (Download.Event) -> Void)? = nil
    ) {
        self.init(url, destination, nil, options, in: nil, onEvent)
    }

    init(
        _ url: String,
        _ destination: Download.Destination,
        _ token: Download.Token?,
        _ options: Download.Options,
        in session: TransferSession?,
        _ onEvent: (@Sendable (Download.Event) -> Void)?
    ) {
        transfer = TransferHandle("the download of \(url)", token, in: session, onEvent) {
            (transfer) throws(TransferError) in
            guard let source = URLText(url) else {
                throw TransferError(
                    .invalid,
                    "\(url) is no URL to download; give one with http:// or https:// and without a user"
                )
            }
            return try DownloadRun(
                source,
                to: destination,
                token: transfer.token,
                options: options,
                control: transfer.control,
                connections: transfer.connections,
                tell: transfer.tell
            ).run()
        }
    }

    /// The download that a token belongs to.
    ///
    /// Where another representation is there by now, a file begins anew, and pieces are refused as `changed`.
    public static func resume(
        from token: Download.Token,
        to destination: Download.Destination,
        options: Download.Options = Download.Options(),
        onEvent: (@Sendable (Download.Event) -> Void)? = nil
    ) -> Download {
        Download(token.url, destination, token, options, in: nil, onEvent)
    }

    /// What the download can be resumed with now; nil: nothing came, or the server names no validator.
    public var token: Download.Token? { transfer.token }

    /// Downloads everything.
    ///
    /// Cancelling the task ends the run as `pause` does; `token` says where to go on.
    ///
    /// - Returns: the last response's status and fields; its content went to the destination.
    /// - Throws: `TransferError`, why it did not come to its end; `CancellationError` if the task was cancelled.
    public func run() async throws -> Transfer.Answer { try await transfer.run() }

    /// As `run`, on the calling thread, which it blocks.
    ///
    /// - Returns: the last response's status and fields; its content went to the destination.
    /// - Throws: why it did not come to its end; `token` says where to go on.
    public func perform() throws(TransferError) -> Transfer.Answer { try transfer.perform() }

    /// As `perform`, for an owner that hears of its own end on another thread.
    ///
    /// - Parameter isStopped: asked once when the run has begun: from then on `requestPause` counts.
    /// - Returns: the last response's status and fields; its content went to the destination.
    /// - Throws: why it did not come to its end; `token` says where to go on.
    package func perform(unless isStopped: () -> Bool) throws(TransferError) -> Transfer.Answer {
        try transfer.perform(unless: isStopped)
    }

    /// Ends the run under way as soon as it can, and gives what to resume with; `run` throws `paused`.
    ///
    /// Without a run it only gives the token.
    public func pause() async -> Download.Token? { await transfer.pause() }

    /// As `pause`, without waiting.
    public func requestPause() { transfer.control.ask(.pause) }
}
