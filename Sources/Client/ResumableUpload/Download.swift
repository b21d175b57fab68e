// The public interface of a download; DownloadRun.swift has the work.

/// A download that resumes after an interruption if the server supports ranges (RFC 9110 §14).
///
/// ```swift
/// let download = Download("https://example.org/today.tar", to: .file("/srv/films/today.tar"))
/// let answer = try await download.run()
/// ```
public final class Download: Sendable {
    /// An event of a download.
    public typealias Event = Transfer.Event<Token>

    private let transfer: TransferHandle<Download.Token>
    private let isBody: Bool
    /// The received bytes that the reader of `body` has not read.
    let channel: DownloadChannel

    /// A stream of the events from now on; the newest 256 are buffered.
    ///
    /// The stream ends with the current run or the next one, or at once if the last run succeeded or failed
    /// permanently.
    public var events: AsyncStream<Download.Event> { transfer.events }

    /// Creates a download; no request is sent before it runs.
    ///
    /// `url` must be absolute, without user and password. The download's thread calls `onEvent` for each event and
    /// waits until it returns.
    public convenience init(
        _ url: String,
        to destination: Download.Destination = .body,
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
        let channel = DownloadChannel()
        self.channel = channel
        isBody = if case .body = destination.kind { true } else { false }
        transfer = TransferHandle("the download of \(url)", token, in: session, onEvent) {
            (transfer) throws(TransferError) in
            guard let source = URLText(url) else {
                throw TransferError(
                    .invalid,
                    "\(url) is not a URL for a download; use http:// or https://, without a user"
                )
            }
            do throws(TransferError) {
                return try DownloadRun(
                    source,
                    to: destination,
                    channel,
                    token: transfer.token,
                    options: options,
                    control: transfer.control,
                    connections: transfer.connections,
                    report: transfer.report
                ).run()
            } catch {
                // The token would lead to the same error again.
                if error.kind == .changed { transfer.set(nil) }
                throw error
            }
        }
    }

    /// Creates the download that a token belongs to.
    ///
    /// If the content on the server has changed since, a file is downloaded from the beginning; for any other
    /// destination, the run throws `.changed`.
    public static func resume(
        from token: Download.Token,
        to destination: Download.Destination = .body,
        options: Download.Options = Download.Options(),
        onEvent: (@Sendable (Download.Event) -> Void)? = nil
    ) -> Download {
        Download(token.url, destination, token, options, in: nil, onEvent)
    }

    /// The token to resume with; nil if no content has arrived or the server sends no strong validator.
    ///
    /// For `.body`, the token continues after the last bytes that the reader received.
    public var token: Download.Token? {
        guard isBody, var token = transfer.token else { return transfer.token }
        token.offset = channel.given
        return token
    }

    /// The content as a sequence, if the destination is `.body`; it can be read once.
    ///
    /// ```swift
    /// let download = Download("https://example.org/today.csv")
    /// for try await bytes in download.body { parser.feed(bytes) }
    /// ```
    public var body: Download.Body { Download.Body(download: self) }

    /// The status and fields of the response whose content `body` passes on; after an interruption, those of the
    /// response with the remaining content.
    ///
    /// Nil before the first bytes arrive, and for other destinations.
    public var response: Transfer.Response? { channel.response }

    /// Downloads all content, and returns the status and fields of the last response.
    ///
    /// Cancelling the task ends the run like `pause`; `token` resumes it.
    ///
    /// - Throws: `TransferError` if the download did not complete, of kind `.invalid` for `.body`; `CancellationError`
    ///   if the task was cancelled.
    public func run() async throws -> Transfer.Response {
        if isBody { throw noRun }
        return try await transfer.run()
    }

    /// Downloads like `run`, but blocks the calling thread.
    ///
    /// - Returns: the status and fields of the last response.
    /// - Throws: the reason if the download did not complete; `token` resumes it.
    public func perform() throws(TransferError) -> Transfer.Response {
        try perform(unless: { false })
    }

    /// Downloads like `perform`, but also honours a request to stop that arrived before the run began.
    ///
    /// `isStopped` is called once, just after the run begins, and returns true to pause it. From then on, another
    /// thread can pause the run with `requestPause`.
    package func perform(unless isStopped: () -> Bool) throws(TransferError) -> Transfer.Response {
        if isBody { throw noRun }
        return try transfer.perform(unless: isStopped)
    }

    /// Ends the current run, which throws `.paused`, and returns the token to resume with.
    public func pause() async -> Download.Token? {
        _ = await transfer.pause()
        return token
    }

    /// Asks the current run to end like `pause`, but returns before it has ended.
    public func requestPause() { transfer.control.request(.pause) }

    // MARK: The body

    /// Begins the run that fills the body; returns nil if there is no body, or if the body already has a reader.
    func beginBody() -> Task<Void, Never>? {
        guard isBody, channel.take() else { return nil }
        return Task { [self] in
            do {
                _ = try await transfer.run()
                channel.end(.success(()))
            } catch {
                channel.end(.failure(error))
            }
        }
    }

    var bodyRefusal: TransferError {
        TransferError(
            .invalid,
            isBody
                ? "the body of \(transfer.name) can be read once; create another download to read it again"
                : "\(transfer.name) has no body, but another destination; create it with .body"
        )
    }

    private var noRun: TransferError {
        TransferError(
            .invalid,
            "\(transfer.name) runs while its body is read: read download.body, or use another destination"
        )
    }
}
