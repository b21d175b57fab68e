// Ports on which nginx speaks HTTP/2 without TLS.
//
// Before 1.25.1, such a port speaks only HTTP/2, so one `listen 80 http2;` breaks HTTP/1.1 clients of all blocks with
// the port.

import SpoolgateTextFormats

struct NginxVersion: Sendable, Equatable, Comparable, CustomStringConvertible {
    let numbers: [Int]

    /// Parses the output of `nginx -v`, such as `nginx version: nginx/1.22.1`.
    init?(_ text: String) {
        guard let slash = text.lastIndex(of: "/") else { return nil }
        let version = text[text.index(after: slash)...].prefix {
            $0.isASCII && ($0.isNumber || $0 == ".")
        }
        numbers = version.split(separator: ".").compactMap { Int($0) }
        guard !numbers.isEmpty else { return nil }
    }

    private init(_ numbers: [Int]) { self.numbers = numbers }

    /// The first version that accepts both HTTP/1.1 and HTTP/2 on a port without TLS.
    static let tellsApart = NginxVersion([1, 25, 1])

    static func < (one: NginxVersion, other: NginxVersion) -> Bool {
        one.numbers.lexicographicallyPrecedes(other.numbers)
    }

    var description: String { numbers.map(String.init).joined(separator: ".") }
}

extension NginxDump {
    /// Returns findings about ports of the server block that accept only HTTP/2 without TLS.
    func cleartextHTTP2(at place: NginxPlace) -> [Finding] {
        if let version, version >= .tellsApart { return [] }
        guard let server = place.around.first(where: { $0.name == "server" }),
            let http = place.around.last
        else { return [] }
        let all = (http.block ?? []).filter { $0.name == "server" }
        var named: [NginxListen] = []
        return server.listenLines.compactMap { listen in
            let address = NginxListen(listen.arguments.first ?? "")
            guard address.port != nil else { return nil }
            // The parameters of one block apply to all blocks with the same address.
            let same = all.flatMap { block in
                block.listenLines.filter { NginxListen($0.arguments.first ?? "") == address }
                    .map { (listen: $0, isSecure: $0.arguments.contains("ssl") || block.hasOldTLS) }
            }
            let speaking = same.map(\.listen).filter { $0.arguments.contains("http2") }
            guard let first = speaking.first(where: { $0 == listen }) ?? speaking.first,
                !same.contains(where: \.isSecure), !named.contains(address)
            else { return nil }
            named.append(address)
            let fixes = speaking.map { line in
                let plain = line.words.filter { $0 != "http2" }.joined(separator: " ")
                return "\(plain);   (in place of \(line.text) at \(line.place))"
            }
            let text = "'\(first.text)' at \(first.place) enables HTTP/2 without TLS"
            guard let version else {
                return .warning(
                    "nginx",
                    "\(text): HTTP/1.1 clients fail on that port before nginx 1.25.1",
                    fixes
                )
            }
            return .failure(
                "nginx",
                "\(text): nginx \(version) speaks nothing else on that port, and HTTP/1.1 clients fail",
                fixes
            )
        }
    }
}

extension NginxDirective {
    fileprivate var listenLines: [NginxDirective] { (block ?? []).filter { $0.name == "listen" } }

    /// Whether a server block enables TLS for all its ports with the directive `ssl`, which nginx 1.25.1 removed.
    fileprivate var hasOldTLS: Bool {
        (block ?? []).contains { $0.name == "ssl" && !$0.saysOff }
    }
}
