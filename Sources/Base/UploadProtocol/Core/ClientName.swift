// Names clients.
//
// Pure. Invariant: a client cannot change its name by switching addresses within its own network.

package import SpoolgateTextFormats

/// The name under which a client's requests and uploads are counted against its limits.
package struct ClientName: Hashable, Sendable, CustomStringConvertible {
    private let name: ExactText
    private let isOwner: Bool

    package var description: String { name.text }

    /// Names a client.
    ///
    /// `owner` is the owner that the web server names. If nil, `address`, the client's address as text, is used.
    /// Clients without both share one name.
    package init(owner: ExactText?, address: String?) {
        isOwner = owner != nil
        name = owner ?? ExactText(address.map(Self.network) ?? "-")
    }

    /// Returns an IPv4 address, or the /64 network of an IPv6 address, because one site controls a whole network.
    private static func network(of address: String) -> String {
        var bytes = address
        let colon = bytes.withUTF8 { $0.index(of: UInt8(ascii: ":"), from: 0) }
        guard colon != nil else { return address }
        let parts = address.split(separator: ":")
        // An IPv4 address on a dual-stack socket: ::ffff:192.0.2.1.
        if let last = parts.last, last.contains(".") { return String(last) }
        var groups = parts
        if let gap = address.firstRange(of: "::") {
            let before = address[..<gap.lowerBound].split(separator: ":")
            let after = address[gap.upperBound...].split(separator: ":")
            let zeros = max(0, 8 - before.count - after.count)
            groups = before + Array(repeating: "0", count: zeros) + after
        }
        let network = groups.prefix(4).map { String($0.drop { $0 == "0" }).lowercased() }
        return network.map { $0.isEmpty ? "0" : $0 }.joined(separator: ":") + "::/64"
    }
}
