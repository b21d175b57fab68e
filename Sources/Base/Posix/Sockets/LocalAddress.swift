// Which addresses of a host are this machine's.

import Glibc

/// The addresses of hosts, as far as they are this machine's own.
package enum LocalAddress {
    /// The addresses of a host that a socket can be bound to here.
    ///
    /// Looks the name up, which may block for as long as the resolver's timeouts.
    ///
    /// - Parameter host: a name or an address, without brackets.
    /// - Returns: addresses as text, those of IPv6 without brackets; none if the host is another one or unknown.
    package static func all(of host: String) -> [String] {
        var hints = addrinfo()
        hints.ai_socktype = Int32(SOCK_DGRAM.rawValue)
        var found: UnsafeMutablePointer<addrinfo>?
        guard getaddrinfo(host, nil, &hints, &found) == 0 else { return [] }
        defer { freeaddrinfo(found) }
        var addresses: [String] = []
        var next = found
        while let entry = next?.pointee {
            if let text = bound(entry) { addresses.append(text) }
            next = entry.ai_next
        }
        return addresses
    }

    /// An address as text, if it is one of this machine's.
    private static func bound(_ entry: addrinfo) -> String? {
        let number = socket(entry.ai_family, entry.ai_socktype | Int32(SOCK_CLOEXEC.rawValue), 0)
        guard number >= 0 else { return nil }
        let probe = Descriptor(owning: number)
        guard bind(probe.number, entry.ai_addr, entry.ai_addrlen) == 0 else { return nil }
        var text = [CChar](repeating: 0, count: Int(NI_MAXHOST))
        let size = socklen_t(text.count)
        guard
            getnameinfo(entry.ai_addr, entry.ai_addrlen, &text, size, nil, 0, NI_NUMERICHOST) == 0
        else { return nil }
        return String(
            decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) },
            as: UTF8.self
        )
    }
}
