// This machine's addresses among a host's.

import Glibc

/// Addresses of this machine.
package enum LocalAddress {
    /// Returns those addresses of a host to which a socket can be bound on this machine.
    ///
    /// Resolves the name, which may block until the resolver's timeout.
    ///
    /// - Parameter host: a name or an address, without brackets.
    /// - Returns: addresses as text, IPv6 without brackets. Empty if the host is another machine or unknown.
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

    /// Returns the address as text, or nil if the address does not belong to this machine.
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
