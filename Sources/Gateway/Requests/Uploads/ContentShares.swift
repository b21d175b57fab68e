// Who wrote the content of which uploads, as far as this process knows: for an operator who looks at one of them.
//
// Invariant: what is in memory does not grow with the spool.

package import SpoolgateExchange
import SpoolgateUploadProtocol

/// How much of an upload's content nginx has written into the spool, and how much came through the gateway.
package struct ContentShares: Sendable, Equatable {
    /// Bytes that nginx has written.
    package var nginx: Int64 = 0
    /// Bytes that came through the gateway.
    package var gateway: Int64 = 0
    /// The path of the last message whose content nginx did not write; nil: nginx wrote all of them.
    package var path: ContentPath?

    /// Makes them.
    package init(nginx: Int64 = 0, gateway: Int64 = 0, path: ContentPath? = nil) {
        (self.nginx, self.gateway, self.path) = (nginx, gateway, path)
    }

    /// As the daemon tells it to its commands, in one line without its end: `nginx=300000 gateway=1 result=-`.
    package var line: String {
        "nginx=\(nginx) gateway=\(gateway) result=\(path?.label ?? "-")"
    }

    /// Reads such a line; nil for what is none.
    package init?(line: some StringProtocol) {
        let values = line.split(separator: " ").compactMap { word -> Substring? in
            word.split(separator: "=", maxSplits: 1).last.map { Substring($0) }
        }
        guard values.count == 3, let nginx = Int64(values[0]), let gateway = Int64(values[1])
        else { return nil }
        self.init(nginx: nginx, gateway: gateway, path: ContentPath(label: values[2]))
    }

    /// In words: `300000 bytes by nginx, 1 by the gateway`.
    package var words: String {
        let why = path?.reason.map { " (\($0))" } ?? ""
        switch (nginx, gateway) {
        case (_, 0): return "\(nginx) bytes by nginx"
        case (0, _): return "\(gateway) bytes by the gateway\(why)"
        default: return "\(nginx) bytes by nginx, \(gateway) by the gateway\(why)"
        }
    }

    /// Adds the content of a later message.
    mutating func add(_ other: ContentShares) {
        nginx += other.nginx
        gateway += other.gateway
        path = other.path ?? path
    }
}

/// The shares of the uploads that received content last.
struct SharesTable {
    /// Most uploads that are remembered.
    static let most = 4096

    private var shares: [UploadID: ContentShares] = [:]
    /// The uploads in the order in which they came, the oldest at `oldest` once it is full.
    private var order: [UploadID] = []
    private var oldest = 0

    /// Adds what one message brought.
    mutating func add(_ added: ContentShares, to id: UploadID) {
        guard added.nginx + added.gateway > 0 else { return }
        if var known = shares[id] {
            known.add(added)
            shares[id] = known
            return
        }
        if order.count < Self.most {
            order.append(id)
        } else {
            shares[order[oldest]] = nil
            order[oldest] = id
            oldest = (oldest + 1) % Self.most
        }
        shares[id] = added
    }

    /// What is known of an upload.
    subscript(id: UploadID) -> ContentShares? { shares[id] }
}
