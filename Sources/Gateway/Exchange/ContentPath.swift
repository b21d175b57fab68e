// Who wrote the content of a message to the spool: the web server or the gateway, and why the gateway.

/// The writer of a message's content: the web server, or the gateway for one of several reasons.
package enum ContentPath: Int, Sendable, CaseIterable {
    /// The web server: it received the file; any content that it did not write passed through the gateway.
    case used
    /// The gateway: the route's setting `spool-receive` is off.
    case off
    /// The gateway: the spool is shared with other nodes.
    case shared
    /// The gateway: the content has a digest, or may be discarded for another reason.
    case digest
    /// The gateway: the upload has no upload resource.
    case ordinary
    /// The gateway: the spool has no space for the web server to write even one byte.
    case full
    /// The gateway: the web server could not use the file of an earlier upload.
    case unusable
    /// The gateway: the web server did not offer to write the content.
    case notOffered
    /// The gateway: the content is too small for an offer.
    case small

    /// Parses a label; returns nil if it is unknown.
    package init?(label: some StringProtocol) {
        guard let path = Self.allCases.first(where: { $0.label == label }) else { return nil }
        self = path
    }

    /// The label in metrics, and in responses of the daemon to its commands.
    package var label: String { self == .notOffered ? "not_offered" : "\(self)" }

    /// A text for people that says why the web server did not write the content; nil if it did.
    package var reason: String? {
        switch self {
        case .used: nil
        case .off: "the route has spool-receive: off"
        case .shared: "the spool is shared"
        case .digest: "the content has a digest"
        case .ordinary: "the upload has no upload resource"
        case .full: "the spool has no space for nginx to write to"
        case .unusable: "nginx could not use the data file"
        case .notOffered: "nginx did not offer to write the content"
        case .small: "the content is 256 KiB or less"
        }
    }
}
