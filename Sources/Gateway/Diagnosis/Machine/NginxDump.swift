// What `nginx -T` prints, taken apart: directives with the file and the line where they stand.
//
// Pure. Files that are included stand where the include stands, as nginx has it. What the values mean is
// judged elsewhere.

import Glibc

/// One directive of nginx.
struct NginxDirective: Sendable, Equatable {
    /// Its name and its parameters.
    var words: [String]
    /// The file.
    var file: String
    /// The line in it, counted from 1.
    var line: Int
    /// What is in its block; nil where it has none.
    var block: [NginxDirective]?

    /// Its name.
    var name: String { words.first ?? "" }
    /// Its parameters.
    var arguments: ArraySlice<String> { words.dropFirst() }
    /// `/etc/nginx/nginx.conf:12`.
    var place: String { "\(file):\(line)" }
    /// As it is written.
    var text: String { words.joined(separator: " ") + (block == nil ? ";" : " {") }
}

/// All of nginx's configuration.
package struct NginxDump: Sendable {
    /// The directives of the main file, included ones among them.
    let directives: [NginxDirective]
    /// The directory of the main file, from which relative paths count.
    let folder: String
    /// The version of the nginx that printed it; nil: not known.
    var version: NginxVersion?
    /// The files of passwords that locations of a gateway name, by their paths, if they were looked at.
    private(set) var passwordFiles: [String: PasswordFile] = [:]

    private static let mark = "# configuration file "
    /// As deep as files that include each other are followed.
    private static let deepest = 16

    /// Reads what `nginx -T` wrote to standard output.
    init(_ text: String) {
        var files: [(name: String, text: [Substring])] = []
        for line in text.split(separator: "\n", omittingEmptySubsequences: false) {
            if line.hasPrefix(Self.mark), line.hasSuffix(":") {
                files.append((String(line.dropFirst(Self.mark.count).dropLast()), []))
            } else if !files.isEmpty {
                files[files.count - 1].text.append(line)
            }
        }
        let parsed = files.map { file in
            var reader = NginxReader(file.text.joined(separator: "\n"), file: file.name)
            return (file.name, reader.directives())
        }
        guard let main = parsed.first else {
            (directives, folder) = ([], "")
            return
        }
        folder = main.0.lastIndex(of: "/").map { String(main.0[..<$0]) } ?? ""
        directives = Self.expand(main.1, from: parsed, folder: folder, depth: 0)
    }

    /// Reads what a command printed, asks it for its version, and looks at the files of passwords.
    ///
    /// - Parameters:
    ///   - text: its standard output.
    ///   - command: how it was called: `nginx -T`, with options.
    init(_ text: String, by command: [String]) {
        self.init(text)
        let asking = command.map { $0 == "-T" ? "-v" : $0 }
        if asking != command {
            version = SystemCommand.errors(of: asking).flatMap { NginxVersion($0) }
        }
        for place in gateways {
            guard let path = NginxLogin(at: place).passwordFile(below: folder) else { continue }
            passwordFiles[path] = passwordFiles[path] ?? PasswordFile(at: path)
        }
    }

    /// The file of passwords at a place; nil: there is none, or it was not looked at.
    func passwordFile(at place: NginxPlace) -> PasswordFile? {
        NginxLogin(at: place).passwordFile(below: folder).flatMap { passwordFiles[$0] }
    }

    /// The faults of the login and the ports at a place, which the location alone does not show.
    ///
    /// - Parameters:
    ///   - place: a location that hands requests to the gateway.
    ///   - workers: nginx's workers, each kind once.
    /// - Returns: empty if no fault is known.
    func findings(at place: NginxPlace, workers: Set<Credentials>) -> [Finding] {
        cleartextHTTP2(at: place)
            + NginxLogin(at: place).findings(passwordFile(at: place), workers: workers)
    }

    private static func expand(
        _ directives: [NginxDirective],
        from files: [(String, [NginxDirective])],
        folder: String,
        depth: Int
    ) -> [NginxDirective] {
        directives.flatMap { directive -> [NginxDirective] in
            if directive.name == "include", let pattern = directive.arguments.first {
                guard depth < deepest else { return [] }
                let whole = pattern.hasPrefix("/") ? pattern : "\(folder)/\(pattern)"
                return files.filter { fnmatch(whole, $0.0, FNM_PATHNAME) == 0 }
                    .flatMap { expand($0.1, from: files, folder: folder, depth: depth + 1) }
            }
            var directive = directive
            directive.block = directive.block.map {
                expand($0, from: files, folder: folder, depth: depth)
            }
            return [directive]
        }
    }

    /// The unix socket that a location's requests go to; nil where it is none.
    func socket(of place: NginxPlace) -> String? {
        guard let target = place.value(of: "fastcgi_pass")?.arguments.first else { return nil }
        if let path = Self.socket(target) { return path }
        for http in directives where http.name == "http" {
            let upstream = (http.block ?? []).first {
                $0.name == "upstream" && $0.arguments.first == target
            }
            let servers = (upstream?.block ?? []).filter { $0.name == "server" }
            if let path = servers.lazy.compactMap({ $0.arguments.first.flatMap(Self.socket) }).first
            {
                return path
            }
        }
        return nil
    }

    private static func socket(_ target: String) -> String? {
        target.hasPrefix("unix:")
            ? String(target.dropFirst(5).prefix { $0 != ":" }) : nil
    }

    /// The places where requests for a path of a host are handed on by FastCGI, the best match first: as nginx
    /// chooses a server block, by port, name and `default_server`, then those of the gateway before others'.
    ///
    /// None where the block of that port and name hands the path to nobody. Where it hands it to another server,
    /// those of other ports; and of all ports where no block has that one, which a proxy may have in front.
    func locations(of path: String, host: String, port: UInt16) -> [NginxPlace] {
        var found: [(place: NginxPlace, rank: Int)] = []
        var isBehind = false
        for http in directives where http.name == "http" {
            for server in http.block ?? [] where server.name == "server" {
                let named = (server.block ?? []).contains {
                    $0.name == "server_name" && $0.arguments.contains(host)
                }
                let listens = (server.block ?? []).filter { $0.name == "listen" }
                let ours = listens.filter { NginxListen($0.arguments.first ?? "").port == port }
                let isHeard = listens.isEmpty ? port == 80 : !ours.isEmpty
                let isDefault = ours.contains { $0.arguments.contains("default_server") }
                let rank =
                    (isHeard ? Self.heard : 0) + (named ? 40_000 : 0) + (isDefault ? 20_000 : 0)
                let places = found.count
                collect([server, http], path, rank, into: &found)
                if isHeard, named, found.count == places {
                    guard Self.handsOn(server) else { return [] }
                    isBehind = true
                }
            }
        }
        return found.filter { !isBehind || $0.rank < Self.heard }
            .sorted { $0.rank > $1.rank }.map(\.place)
    }

    /// The rank of a block that listens on the port, above all that may be added to others.
    private static let heard = 80_000

    /// Whether anything in a block is handed on to a server of HTTP.
    private static func handsOn(_ block: NginxDirective) -> Bool {
        (block.block ?? []).contains { $0.name == "proxy_pass" || handsOn($0) }
    }

    /// Every location of every server block that hands uploads to a gateway.
    var gateways: [NginxPlace] { places(where: \.isGateways).filter { !isAdmin($0) } }

    /// Every location of every server block that hands an operator's questions to a daemon.
    var adminPlaces: [NginxPlace] {
        places { $0.block?.contains { $0.name == "fastcgi_pass" } ?? false }.filter(isAdmin)
    }

    /// Whether a location is the one of admin.conf, or hands requests to such a socket.
    private func isAdmin(_ place: NginxPlace) -> Bool {
        place.path == "/-/spoolgate/" || socket(of: place)?.hasSuffix("/admin.sock") ?? false
    }

    private func places(where isMeant: (NginxDirective) -> Bool) -> [NginxPlace] {
        func collect(_ around: [NginxDirective]) -> [NginxPlace] {
            (around.first?.block ?? []).flatMap { directive -> [NginxPlace] in
                guard ["http", "server", "location"].contains(directive.name) else { return [] }
                let inner = [directive] + around
                let own = isMeant(directive) ? [NginxPlace(around: inner)] : []
                return own + collect(inner)
            }
        }
        return directives.filter { $0.name == "http" }.flatMap { collect([$0]) }
    }

    private func collect(
        _ around: [NginxDirective],
        _ path: String,
        _ rank: Int,
        into found: inout [(place: NginxPlace, rank: Int)]
    ) {
        for location in around.first?.block ?? [] where location.name == "location" {
            let place = NginxPlace(around: [location] + around)
            if place.value(of: "fastcgi_pass") != nil, let length = place.match(path) {
                found.append((place, rank + length + (location.isGateways ? 10_000 : 0)))
            }
            collect([location] + around, path, rank, into: &found)
        }
    }
}

/// One location, with the blocks around it.
struct NginxPlace: Sendable {
    /// The location, then what it is in, up to `http`.
    let around: [NginxDirective]

    /// The location itself.
    var location: NginxDirective { around[0] }

    /// How much of a path it matches; nil: it does not.
    ///
    /// Patterns are taken for the least match.
    func match(_ path: String) -> Int? {
        switch location.match {
        case .exact(let exact)?: exact == path ? 9_000 : nil
        case .pattern?: 0
        case .prefix(let prefix, _)?: path.hasPrefix(prefix) ? prefix.utf8.count : nil
        case .named?, nil: nil
        }
    }

    /// All directives of a name that are in force here: those of the innermost block that has any.
    func values(of name: String) -> [NginxDirective] {
        around.lazy.map { ($0.block ?? []).filter { $0.name == name } }.first { !$0.isEmpty } ?? []
    }

    /// The directive that is in force here for `name`, and for a first parameter, where one is given.
    func value(of name: String, _ first: String? = nil) -> NginxDirective? {
        for block in around {
            let found = (block.block ?? []).last {
                $0.name == name && (first == nil || $0.arguments.first == first)
            }
            if let found { return found }
            // It is never inherited; parameters are only where a level has none of its own.
            if name == "fastcgi_pass" { return nil }
            if name == "fastcgi_param", block.block?.contains(where: { $0.name == name }) ?? false {
                return nil
            }
        }
        return nil
    }
}
