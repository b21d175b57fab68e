// What uploads and downloads of one program share: connections, how many run at a time, what they are asked by default.
//
// The invariant: a session begins nothing; a transfer of it that is not run costs no connection and no place.

import SpoolgateCurl

/// Connections, limits and defaults of many transfers.
///
/// Connections that a transfer leaves open are reused by the next one to the same server, for a minute; the transfers
/// beyond `maximumTransfers` wait for their turn, without a thread while they wait in `run`.
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
    /// What an upload is asked that is given no options.
    public let uploadOptions: Upload.Options
    /// What a download is asked that is given no options.
    public let downloadOptions: Download.Options
    /// Most transfers that run at a time; at least 1.
    public let maximumTransfers: Int

    let connections = ConnectionPool()
    let appendLimit = AppendLimit()
    let slots: TransferSlots

    /// Makes a session; nothing is connected yet.
    ///
    /// - Parameters:
    ///   - maximumTransfers: most transfers that run at a time, each on a thread and over a connection of its own; below 1
    ///     counts as 1.
    ///   - uploadOptions: for uploads that are given none.
    ///   - downloadOptions: for downloads that are given none.
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

    /// Makes an upload, as `Upload.init` does, that takes its connections and its turn here.
    ///
    /// - Parameters:
    ///   - body: what is sent.
    ///   - url: where to; absolute, without user and password.
    ///   - options: how; nil: as `uploadOptions` says.
    ///   - onEvent: told of what happens, on the upload's thread, which waits for it meanwhile.
    /// - Returns: the upload; nothing is sent before it runs.
    public func upload(
        _ body: Upload.Body,
        to url: String,
        options: Upload.Options? = nil,
        onEvent: (@Sendable (Upload.Event) -> Void)? = nil
    ) -> Upload {
        Upload(body, url, nil, options ?? uploadOptions, in: self, onEvent)
    }

    /// The upload that a token belongs to, as `Upload.resume`.
    ///
    /// - Parameters:
    ///   - token: from an event, an error or `pause`, of this process or another one.
    ///   - body: the same body; a stream from its beginning.
    ///   - options: as for the first time; nil: as `uploadOptions` says.
    ///   - onEvent: as for the first time.
    /// - Returns: an upload that goes on when it runs.
    public func resumeUpload(
        from token: Upload.Token,
        body: Upload.Body,
        options: Upload.Options? = nil,
        onEvent: (@Sendable (Upload.Event) -> Void)? = nil
    ) -> Upload {
        Upload(body, token.target, token, options ?? uploadOptions, in: self, onEvent)
    }

    /// Makes a download, as `Download.init` does, that takes its connections and its turn here.
    ///
    /// - Parameters:
    ///   - url: what; absolute, without user and password.
    ///   - destination: where to.
    ///   - options: how; nil: as `downloadOptions` says.
    ///   - onEvent: told of what happens, on the download's thread, which waits for it meanwhile.
    /// - Returns: the download; nothing is sent before it runs.
    public func download(
        _ url: String,
        to destination: Download.Destination = .body,
        options: Download.Options? = nil,
        onEvent: (@Sendable (Download.Event) -> Void)? = nil
    ) -> Download {
        Download(url, destination, nil, options ?? downloadOptions, in: self, onEvent)
    }

    /// The download that a token belongs to, as `Download.resume`.
    ///
    /// - Parameters:
    ///   - token: from an event, of this process or another one.
    ///   - destination: where to, as for the first time.
    ///   - options: as for the first time; nil: as `downloadOptions` says.
    ///   - onEvent: as for the first time.
    /// - Returns: a download that goes on when it runs.
    public func resumeDownload(
        from token: Download.Token,
        to destination: Download.Destination = .body,
        options: Download.Options? = nil,
        onEvent: (@Sendable (Download.Event) -> Void)? = nil
    ) -> Download {
        Download(token.url, destination, token, options ?? downloadOptions, in: self, onEvent)
    }
}
