// How a message's content reached the spool.

/// The writer of a message's content: the web server (`used`), or the gateway for the reason that the case names.
package enum ContentPath: Int, Sendable, CaseIterable {
    /// The web server wrote content.
    ///
    /// Any other content passed through the gateway.
    case used
    case off
    case shared
    /// The content has a digest, or may be discarded for another reason.
    case digest
    /// The length is unknown, and the client takes the offset of all content for success.
    case length
    case ordinary
    /// The spool has no space for even one byte.
    case full
    /// The web server could not use the file of an earlier upload.
    case unusable
    case notOffered
    case small

    /// Parses a label; returns nil if it is unknown.
    package init?(label: some StringProtocol) {
        guard let path = Self.allCases.first(where: { $0.label == label }) else { return nil }
        self = path
    }

    /// The label in metrics and in the daemon's responses to its commands.
    package var label: String { self == .notOffered ? "not_offered" : "\(self)" }

    /// A text for people that says why the web server did not write the content; nil for `used`.
    package var reason: String? {
        switch self {
        case .used: nil
        case .off: "the route has spool-receive: off"
        case .shared: "the spool is shared"
        case .digest: "the content has a digest"
        case .length: "the length is unknown, and the client takes an offset for success"
        case .ordinary: "the upload has no upload resource"
        case .full: "the spool has no space for nginx to write to"
        case .unusable: "nginx could not use the data file"
        case .notOffered: "nginx did not offer to write the content"
        case .small: "the content is 256 KiB or less"
        }
    }
}
