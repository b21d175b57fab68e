// Whom the bounds of one client are held against.
//
// Pure. Invariant: nobody becomes another client by choosing among the addresses of his own network.

package import SpoolgateTextFormats

/// The name one client is counted under.
package struct ClientName: Hashable, Sendable, CustomStringConvertible {
    /// An owner as it is, or an address or network.
    private let name: ExactText
    private let isOwner: Bool

    /// The same as text.
    package var description: String { name.text }

    /// Names a client.
    ///
    /// - Parameters:
    ///   - owner: who it is, as the web server says; nil: not known, and its address stands for it.
    ///   - address: its address as text; nil: not known, and it is counted with all of that kind.
    package init(owner: ExactText?, address: String?) {
        isOwner = owner != nil
        name = owner ?? ExactText(address.map(Self.network) ?? "-")
    }

    /// An IPv4 address as it is; of an IPv6 address the network of 64 bits that one site has at least.
    private static func network(of address: String) -> String {
        guard address.utf8.contains(UInt8(ascii: ":")) else { return address }
        let parts = address.split(separator: ":")
        // IPv4 as a socket for both shows it: ::ffff:192.0.2.1.
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
