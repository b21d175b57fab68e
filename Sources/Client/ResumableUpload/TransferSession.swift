// The session of many transfers.
//
// The invariant: a session starts no transfer, and a transfer that does not run uses no connection and no slot.

import SpoolgateCurl

/// The connections, limits and default options that many transfers share.
///
/// An open connection is reused for the same server within a minute. Transfers beyond `maximumTransfers` wait for their
/// turn, in `run` without a thread.
///
/// ```swift
/// let session = TransferSession(maximumTransfers: 4)
/// try await withThrowingDiscardingTaskGroup { group in
///     for path in paths {
///         group.addTask { _ = try await session.upload(.file(path), to: url(path)).run() }
///     }
/// }
/// ```
public final class TransferSession: Sendable {
    /// The default options of uploads.
    public let uploadOptions: Upload.Options
    /// The default options of downloads.
    public let downloadOptions: Download.Options
    /// The maximum number of concurrent transfers, each on its own thread and connection; at least 1.
    public let maximumTransfers: Int

    let connections = ConnectionPool()
    let appendLimit = AppendLimit()
    let slots: TransferSlots

    /// Creates a session without connections; values of `maximumTransfers` below 1 are treated as 1.
    public init(
        maximumTransfers: Int = 8,
        uploadOptions: Upload.Options = Upload.Options(),
        downloadOptions: Download.Options = Download.Options()
    ) {
        self.maximumTransfers = max(1, maximumTransfers)
        self.uploadOptions = uploadOptions
        self.downloadOptions = downloadOptions
        slots = TransferSlots(maximumTransfers)
    }

    /// Creates an upload like `Upload.init`, in this session.
    ///
    /// If `options` is nil, `uploadOptions` apply. No request is sent before the upload runs.
    public func upload(
        _ body: Upload.Body,
        to url: String,
        options: Upload.Options? = nil,
        onEvent: (@Sendable (Upload.Event) -> Void)? = nil
    ) -> Upload {
        Upload(body, url, nil, options ?? uploadOptions, in: self, onEvent)
    }

    /// Creates the upload that a token belongs to, like `Upload.resume`.
    ///
    /// If `options` is nil, `uploadOptions` apply. The upload continues when it runs.
    public func resumeUpload(
        from token: Upload.Token,
        body: Upload.Body,
        options: Upload.Options? = nil,
        onEvent: (@Sendable (Upload.Event) -> Void)? = nil
    ) -> Upload {
        Upload(body, token.target, token, options ?? uploadOptions, in: self, onEvent)
    }

    /// Creates a download like `Download.init`, in this session.
    ///
    /// If `options` is nil, `downloadOptions` apply. No request is sent before the download runs.
    public func download(
        _ url: String,
        to destination: Download.Destination = .body,
        options: Download.Options? = nil,
        onEvent: (@Sendable (Download.Event) -> Void)? = nil
    ) -> Download {
        Download(url, destination, nil, options ?? downloadOptions, in: self, onEvent)
    }

    /// Creates the download that a token belongs to, like `Download.resume`.
    ///
    /// If `options` is nil, `downloadOptions` apply. The download continues when it runs.
    public func resumeDownload(
        from token: Download.Token,
        to destination: Download.Destination = .body,
        options: Download.Options? = nil,
        onEvent: (@Sendable (Download.Event) -> Void)? = nil
    ) -> Download {
        Download(token.url, destination, token, options ?? downloadOptions, in: self, onEvent)
    }
}
