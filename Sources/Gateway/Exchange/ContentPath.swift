// The path that the content of one message took into the spool, and why it was not the lane.

/// Who wrote the content of one message: the web server, or the gateway for one of several reasons.
package enum ContentPath: Int, Sendable, CaseIterable {
    /// The web server: it has taken the file, and what it did not write came through the gateway.
    case taken
    /// The gateway: the route's setting `spool-receive` is off.
    case off
    /// The gateway: the spool is shared with other nodes.
    case shared
    /// The gateway: the content has a digest, or may be taken back for another reason.
    case digest
    /// The gateway: the upload has no resource.
    case ordinary
    /// The gateway: there is no room for the web server to write a single byte.
    case full
    /// The gateway: the web server could not use a file that it was given before.
    case unusable
    /// The gateway: the web server offered nothing.
    case notOffered
    /// The gateway: it is so little that the web server makes no offer.
    case small

    /// Reads a label; nil for what is none.
    package init?(label: some StringProtocol) {
        guard let path = Self.allCases.first(where: { $0.label == label }) else { return nil }
        self = path
    }

    /// The word in metrics, and in what the daemon tells its commands.
    package var label: String { self == .notOffered ? "not_offered" : "\(self)" }

    /// Why the web server wrote nothing, for people; nil: it did.
    package var reason: String? {
        switch self {
        case .taken: nil
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
