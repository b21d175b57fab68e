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
    private let isBody: Bool
    /// What was not read yet of its body.
    let channel: DownloadChannel

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
                    tell: transfer.tell
                ).run()
            } catch {
                // With it the same end would come again.
                if error.kind == .changed { transfer.set(nil) }
                throw error
            }
        }
    }

    /// The download that a token belongs to.
    ///
    /// Where another representation is there by now, a file begins anew, and pieces are refused as `changed`.
    public static func resume(
        from token: Download.Token,
        to destination: Download.Destination = .body,
        options: Download.Options = Download.Options(),
        onEvent: (@Sendable (Download.Event) -> Void)? = nil
    ) -> Download {
        Download(token.url, destination, token, options, in: nil, onEvent)
    }

    /// What the download can be resumed with now; nil: nothing came, or the server names no validator that is strong.
    ///
    /// That of a body goes on behind the last bytes that its reader got.
    public var token: Download.Token? {
        guard isBody, var token = transfer.token else { return transfer.token }
        token.offset = channel.given
        return token
    }

    /// The bytes, of a download whose destination is `.body`; read once.
    ///
    /// ```swift
    /// let download = Download("https://example.org/today.csv")
    /// for try await bytes in download.body { parser.feed(bytes) }
    /// ```
    public var body: Download.Body { Download.Body(download: self) }

    /// Status and fields of the response that the body is from: after its first bytes, and after a cut those of the response
    /// with the rest; nil before, and for other destinations.
    public var answer: Transfer.Answer? { channel.answer }

    /// Downloads everything.
    ///
    /// Cancelling the task ends the run as `pause` does; `token` says where to go on.
    ///
    /// - Returns: the last response's status and fields; its content went to the destination.
    /// - Throws: `TransferError`, why it did not come to its end, of kind `.invalid` if the destination is `.body`;
    ///   `CancellationError` if the task was cancelled.
    public func run() async throws -> Transfer.Answer {
        if isBody { throw noRun }
        return try await transfer.run()
    }

    /// As `run`, on the calling thread, which it blocks.
    ///
    /// - Returns: the last response's status and fields; its content went to the destination.
    /// - Throws: why it did not come to its end; `token` says where to go on.
    public func perform() throws(TransferError) -> Transfer.Answer {
        try perform(unless: { false })
    }

    /// As `perform`, for an owner that hears of its own end on another thread.
    ///
    /// - Parameter isStopped: asked once when the run has begun: from then on `requestPause` counts.
    /// - Returns: the last response's status and fields; its content went to the destination.
    /// - Throws: why it did not come to its end; `token` says where to go on.
    package func perform(unless isStopped: () -> Bool) throws(TransferError) -> Transfer.Answer {
        if isBody { throw noRun }
        return try transfer.perform(unless: isStopped)
    }

    /// Ends the run under way as soon as it can, and gives what to resume with; `run` throws `paused`.
    ///
    /// Without a run it only gives the token.
    public func pause() async -> Download.Token? {
        _ = await transfer.pause()
        return token
    }

    /// As `pause`, without waiting.
    public func requestPause() { transfer.control.ask(.pause) }

    // MARK: The body

    /// Begins the run that gives the body its bytes; nil: there is no body to read, or a reader has it.
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

    /// Why `beginBody` gave nothing.
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
