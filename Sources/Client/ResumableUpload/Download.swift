// A download, as a program sees it.
//
// What it shares with an upload is a `Transfer`; what one run does stands in DownloadRun.swift.

/// Where a download goes.
public struct DownloadDestination: Sendable {
    enum Kind: Sendable {
        case file(String)
        case pieces(@Sendable ([UInt8]) throws -> Void)
    }

    let kind: Kind

    /// A file: written beside it as `PATH.part`, made durable and then renamed.
    public static func file(_ path: String) -> DownloadDestination {
        DownloadDestination(kind: .file(path))
    }

    /// A function that gets the bytes in order and that the server waits for.
    ///
    /// What it throws ends the download.
    public static func pieces(
        _ take: @escaping @Sendable ([UInt8]) throws -> Void
    ) -> DownloadDestination {
        DownloadDestination(kind: .pieces(take))
    }
}

/// A download that survives cuts, where the server knows ranges (RFC 9110 §14).
///
/// ```swift
/// let download = Download("https://example.org/today.tar", to: .file("/srv/films/today.tar"))
/// let answer = try await download.run()
/// ```
public final class Download: Sendable {
    private let transfer: Transfer<DownloadToken>

    /// What happens, for one reader; the newest 256 events are kept for it.
    public var events: AsyncStream<DownloadEvent> { transfer.events }

    /// Makes a download; nothing is sent before it runs.
    ///
    /// - Parameters:
    ///   - url: what; absolute, without user and password.
    ///   - destination: where to.
    ///   - options: how.
    ///   - onEvent: told of what happens, on the download's thread, which waits for it meanwhile.
    public convenience init(
        _ url: String,
        to destination: DownloadDestination,
        options: DownloadOptions = DownloadOptions(),
        onEvent: (@Sendable (DownloadEvent) -> Void)? = nil
    ) {
        self.init(url, destination, nil, options, onEvent)
    }

    private init(
        _ url: String,
        _ destination: DownloadDestination,
        _ token: DownloadToken?,
        _ options: DownloadOptions,
        _ onEvent: (@Sendable (DownloadEvent) -> Void)?
    ) {
        transfer = Transfer("the download of \(url)", token, onEvent) {
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
                tell: transfer.tell
            ).run()
        }
    }

    /// The download that a token belongs to.
    ///
    /// Where another representation is there by now, a file begins anew, and pieces are refused as `changed`.
    public static func resume(
        from token: DownloadToken,
        to destination: DownloadDestination,
        options: DownloadOptions = DownloadOptions(),
        onEvent: (@Sendable (DownloadEvent) -> Void)? = nil
    ) -> Download {
        Download(token.url, destination, token, options, onEvent)
    }

    /// What the download can be resumed with now; nil: nothing came, or the server names no validator.
    public var token: DownloadToken? { transfer.token }

    /// Downloads everything.
    ///
    /// Cancelling the task is as `pause`.
    ///
    /// - Returns: the last response's status and fields; its content went to the destination.
    /// - Throws: why it did not come to its end; `token` says where to go on.
    public func run() async throws(TransferError) -> Answer { try await transfer.run() }

    /// As `run`, on the calling thread, which it blocks.
    public func perform() throws(TransferError) -> Answer { try transfer.perform() }

    /// Ends the run as soon as it can, and gives what to resume with; `run` throws `paused`.
    public func pause() async -> DownloadToken? { await transfer.pause() }

    /// As `pause`, without waiting.
    public func requestPause() { transfer.control.ask(.pause) }
}
