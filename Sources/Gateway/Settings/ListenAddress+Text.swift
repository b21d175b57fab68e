// The text form of listen addresses in the settings.

package import SpoolgatePosix

extension ListenAddress {
    static let forms = "unix:/path, tcp:host:port or systemd"

    /// Parses `unix:/path`, `tcp:host:port` (such as `tcp:[::1]:9000`) or `systemd`; returns nil for other text.
    package init?(_ text: String) {
        if text == "systemd" {
            self = .inherited
        } else if text.hasPrefix("unix:/") {
            self = .unix(path: String(text.dropFirst(5)), mode: 0o660, group: nil)
        } else if text.hasPrefix("tcp:"), let colon = text.lastIndex(of: ":"),
            let port = UInt16(text[text.index(after: colon)...]), port > 0
        {
            let address = text.dropFirst(4)
            guard address.startIndex < colon else { return nil }
            self = .tcp(String(address))
        } else {
            return nil
        }
    }

    /// The address as written in the settings.
    package var text: String {
        switch self {
        case .unix(let path, _, _): "unix:\(path)"
        case .tcp(let address): "tcp:\(address)"
        case .inherited: "systemd"
        }
    }

    /// The permission bits of a unix socket; nil for other addresses, which ignore a new value.
    var mode: UInt32? {
        get { if case .unix(_, let mode, _) = self { mode } else { nil } }
        set {
            guard case .unix(let path, _, let group) = self, let newValue else { return }
            self = .unix(path: path, mode: newValue, group: group)
        }
    }

    /// The group of a unix socket, or nil if none is set; other addresses ignore a new value.
    package var group: String? {
        get { if case .unix(_, _, let group) = self { group } else { nil } }
        set {
            guard case .unix(let path, let mode, _) = self else { return }
            self = .unix(path: path, mode: mode, group: newValue)
        }
    }
}
