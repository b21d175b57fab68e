// The shares of content, for operators.

package import SpoolgateExchange
import SpoolgatePosix
import SpoolgateUploadProtocol

/// How many bytes of an upload's content nginx wrote to the spool, and how many passed through the gateway.
package struct ContentShares: Sendable, Equatable {
    package var nginx: Int64 = 0
    package var gateway: Int64 = 0
    /// Why nginx did not write the last message that passed through the gateway; nil if nginx wrote all messages.
    package var path: ContentPath?

    /// Creates shares.
    package init(nginx: Int64 = 0, gateway: Int64 = 0, path: ContentPath? = nil) {
        (self.nginx, self.gateway, self.path) = (nginx, gateway, path)
    }

    /// The line that the daemon sends to its commands, without a line break: `nginx=300000 gateway=1 result=-`.
    package var line: String {
        "nginx=\(nginx) gateway=\(gateway) result=\(path?.label ?? "-")"
    }

    /// Parses a `line`; returns nil if it is invalid.
    package init?(line: some StringProtocol) {
        let values = line.split(separator: " ").compactMap { word -> Substring? in
            word.split(separator: "=", maxSplits: 1).last.map { Substring($0) }
        }
        guard values.count == 3, let nginx = Int64(values[0]), let gateway = Int64(values[1])
        else { return nil }
        self.init(nginx: nginx, gateway: gateway, path: ContentPath(label: values[2]))
    }

    /// A text for people: `300000 bytes by nginx, 1 by the gateway`.
    package var words: String {
        let why = path?.reason.map { " (\($0))" } ?? ""
        switch (nginx, gateway) {
        case (_, 0): return "\(nginx) bytes by nginx"
        case (0, _): return "\(gateway) bytes by the gateway\(why)"
        default: return "\(nginx) bytes by nginx, \(gateway) by the gateway\(why)"
        }
    }

    mutating func add(_ other: ContentShares) {
        nginx += other.nginx
        gateway += other.gateway
        path = other.path ?? path
    }
}

/// The shares of the uploads that most recently began to receive content.
struct SharesTable {
    static let most = 4096

    private var shares = RecentTable<UploadID, ContentShares>(most: most)

    mutating func add(_ added: ContentShares, to id: UploadID) {
        guard added.nginx + added.gateway > 0 else { return }
        var known = shares[id] ?? ContentShares()
        known.add(added)
        shares[id] = known
    }

    subscript(id: UploadID) -> ContentShares? { shares[id] }
}
