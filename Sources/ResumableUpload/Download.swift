// A download, as a program sees it.
//
// The work is a blocking run (DownloadRun.swift) on one thread; `async` is only the surface.

import Posix

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
    private let url: String
    private let destination: DownloadDestination
    private let options: DownloadOptions
    private let control = TransferControl()
    private let current: Monitor<DownloadToken?>
    private let onEvent: (@Sendable (DownloadEvent) -> Void)?
    private let sink: AsyncStream<DownloadEvent>.Continuation

    /// What happens, for one reader; the newest 256 events are kept for it.
    public let events: AsyncStream<DownloadEvent>

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
        self.url = url
        self.destination = destination
        self.options = options
        self.onEvent = onEvent
        current = Monitor(token)
        (events, sink) = AsyncStream.makeStream(bufferingPolicy: .bufferingNewest(256))
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
    public var token: DownloadToken? { current.update { $0 } }

    /// Downloads everything.
    ///
    /// Cancelling the task is as `pause`.
    ///
    /// - Returns: the last response's status and fields; its content went to the destination.
    /// - Throws: why it did not come to its end; `token` says where to go on.
    public func run() async throws(TransferError) -> Answer {
        let result = await withTaskCancellationHandler {
            await TransferControl.onThread("download") { self.performed() }
        } onCancel: {
            requestPause()
        }
        return try result.get()
    }

    /// As `run`, on the calling thread, which it blocks.
    public func perform() throws(TransferError) -> Answer { try performed().get() }

    /// Ends the run as soon as it can, and gives what to resume with; `run` throws `paused`.
    public func pause() async -> DownloadToken? {
        requestPause()
        await control.ended()
        return token
    }

    /// As `pause`, without waiting.
    public func requestPause() { control.ask(.pause) }

    private func performed() -> Result<Answer, TransferError> {
        let result = control.run { Result { () throws(TransferError) in try runOnce() } }
        return result ?? .failure(TransferError(.invalid, "the download of \(url) runs already"))
    }

    private func runOnce() throws(TransferError) -> Answer {
        guard let source = URLText(url) else {
            throw TransferError(
                .invalid,
                "\(url) is no URL to download; give one with http:// or https:// and without a user"
            )
        }
        let run = try DownloadRun(
            source,
            to: destination,
            token: token,
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
            if !error.mayWorkLater { sink.finish() }
            throw error
        }
    }
}
