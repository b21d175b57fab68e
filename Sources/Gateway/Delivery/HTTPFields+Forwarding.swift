// The fields that identify the client to the upstream, as a reverse proxy adds them.

package import HTTPTypes
package import SpoolgateExchange
package import SpoolgateSettings
import SpoolgateTextFormats
package import SpoolgateUploadProtocol
package import SpoolgateUpstream

extension HTTPFields {
    /// Adds the client's address, scheme and host, and the gateway's own `Via` (RFC 9110 §7.6.3), to the fields.
    ///
    /// The address is appended to the addresses that the fields already list. The scheme and host replace existing
    /// values of `X-Forwarded-*`. `forwarding` chooses `X-Forwarded-*`, `Forwarded` or both. `address` is the client's
    /// address as reported by the web server. Values that are nil are not added, nor are fields with a name in
    /// `granted`, which the authorizer has set or removed.
    package mutating func addForwarding(
        _ forwarding: FieldPolicy.Forwarding,
        address: String?,
        scheme: String?,
        host: String?,
        except granted: [HTTPField.Name] = [],
        by gateway: GatewayName
    ) {
        let host = host.flatMap { $0.isEmpty ? nil : $0 }
        reserveCapacity(count + 5)
        if forwarding != .forwarded, forwarding != .none {
            if let address { put(.xForwardedFor, address, behindOthers: true, except: granted) }
            if let scheme { put(.xForwardedProto, scheme, except: granted) }
            if let host { put(.xForwardedHost, host, except: granted) }
        }
        if forwarding == .forwarded || forwarding == .both {
            let pairs = [
                address.map { "for=\(Self.node($0))" }, scheme.map { "proto=\(Self.value($0))" },
                host.map { "host=\(Self.value($0))" },
            ].compactMap { $0 }
            if !pairs.isEmpty {
                let value = pairs.joined(separator: ";")
                put(.forwarded, value, behindOthers: true, except: granted)
            }
        }
        append(gateway.via)
    }

    /// Sets a field, or appends to its value if `behindOthers` is true.
    ///
    /// Most values from clients were removed earlier.
    private mutating func put(
        _ name: HTTPField.Name,
        _ value: String,
        behindOthers: Bool = false,
        except granted: [HTTPField.Name]
    ) {
        guard granted.isEmpty || !granted.contains(name) else { return }
        guard contains(name) else { return append(HTTPField(name: name, value: value)) }
        let before = behindOthers ? self[name].map { "\($0), " } ?? "" : ""
        self[name] = before + value
    }

    /// Replaces the client's `Host` with the host of the public origin.
    ///
    /// The web server may have used the host in the request's target (RFC 9112 §3.2.2). If the origin is invalid, the
    /// host is unknown, and the field is removed.
    package mutating func takeHost(from context: ExchangeContext) {
        if let origin = context.origin, let slash = origin.utf8.firstIndex(of: UInt8(ascii: "/")) {
            // The two hosts are usually equal.
            if let stated = value(of: .host), Self.isHost(stated, of: origin) { return }
            self[.host] = String(Substring(origin.utf8[slash...].dropFirst(2)))
        } else if context.badOrigin != nil {
            self[.host] = nil
        }
    }

    /// Relies on an origin containing slashes only before its host.
    private static func isHost(_ host: String, of origin: String) -> Bool {
        var (host, origin) = (host, origin)
        return host.withUTF8 { host in
            origin.withUTF8 { origin in
                let start = origin.count - host.count
                guard start > 0, origin[start - 1] == UInt8(ascii: "/") else { return false }
                let rest = UnsafeBufferPointer(rebasing: origin[start...])
                return rest.equals(host) && rest.index(of: UInt8(ascii: "/"), from: 0) == nil
            }
        }
    }

    /// An address as a node of `Forwarded` (RFC 7239 §6): IPv6 in brackets and quotes; `unknown` if invalid.
    private static func node(_ address: String) -> String {
        let isAddress = address.utf8.allSatisfy("0123456789abcdefABCDEF.:".utf8.contains)
        guard isAddress, !address.isEmpty else { return "unknown" }
        return address.contains(":") ? "\"[\(address)]\"" : address
    }

    /// The text as a token or a quoted string (RFC 7239 §4).
    private static func value(_ text: String) -> String {
        if HTTPField.Name(text) != nil { return text }
        let escaped = text.unicodeScalars.map { $0 == "\"" || $0 == "\\" ? "\\\($0)" : "\($0)" }
        return "\"\(escaped.joined())\""
    }
}

extension Settings {
    /// The correlation field of a request, which the gateway has set; nil if the settings name none.
    package func correlation(in head: RequestHead) -> HTTPField? {
        correlationField.flatMap { name in
            head.fields[name].map { HTTPField(name: name, value: $0) }
        }
    }
}

extension HTTPField.Name {
    package static let forwarded = made("forwarded")
    package static let xForwardedFor = made("x-forwarded-for")
    static let xForwardedProto = made("x-forwarded-proto")
    package static let xForwardedHost = made("x-forwarded-host")
}

extension HTTPResponse.Status {
    /// Whether a final response with this status can have content (RFC 9110 §6.4.1).
    package var hasContent: Bool { code >= 200 && code != 204 && code != 304 }
}
