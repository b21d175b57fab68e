// The output of `nginx -T`, parsed into directives with file and line.
//
// Pure, except for running `nginx -v` and reading password files.

import Glibc

struct NginxDirective: Sendable, Equatable {
    var words: [String]
    var file: String
    /// The line, counted from 1.
    var line: Int
    /// The directives in this directive's block; nil without a block.
    var block: [NginxDirective]?

    var name: String { words.first ?? "" }
    var arguments: ArraySlice<String> { words.dropFirst() }
    var place: String { "\(file):\(line)" }
    var text: String { words.joined(separator: " ") + (block == nil ? ";" : " {") }
}

/// The configuration of one nginx: its main file and all included files.
package struct NginxDump: Sendable {
    /// The directives, with those of an included file in place of its `include`, as in nginx.
    let directives: [NginxDirective]
    /// The directory of the main file, to which relative paths refer.
    let folder: String
    /// The version of nginx; nil if unknown.
    var version: NginxVersion?
    /// The password files that were read, keyed by path.
    private(set) var passwordFiles: [String: PasswordFile] = [:]

    private static let mark = "# configuration file "
    /// The maximum depth of nested includes.
    private static let deepest = 16

    /// Parses the standard output of `nginx -T`.
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

    /// Parses the output of `command` (`nginx -T`), and reads nginx's version and the password files.
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

    /// Returns the password file of a location, if it was read.
    func passwordFile(at place: NginxPlace) -> PasswordFile? {
        NginxLogin(at: place).passwordFile(below: folder).flatMap { passwordFiles[$0] }
    }

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

    /// Returns the unix socket to which a location passes requests, if any.
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

    /// Returns the locations that match a URL and pass requests to a FastCGI server, best match first.
    ///
    /// Sorted by the server block's port, name and `default_server`, as in nginx. In a block, the gateway's locations
    /// precede others. If the block with this port and name has no such location, the result is empty or, if the block
    /// is a proxy, contains only the locations on other ports.
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

    /// The rank of the requested port, higher than the sum of all other ranks.
    private static let heard = 80_000

    /// Returns whether a block, or a nested block, contains `proxy_pass`.
    private static func handsOn(_ block: NginxDirective) -> Bool {
        (block.block ?? []).contains { $0.name == "proxy_pass" || handsOn($0) }
    }

    /// All locations that pass uploads to a gateway.
    var gateways: [NginxPlace] { places(where: \.isGateways).filter { !isAdmin($0) } }

    var adminPlaces: [NginxPlace] {
        places { $0.block?.contains { $0.name == "fastcgi_pass" } ?? false }.filter(isAdmin)
    }

    /// Returns whether a location is the one in admin.conf, or its socket is named `admin.sock`.
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

struct NginxPlace: Sendable {
    /// The location, then the blocks that enclose it, from the innermost to `http`.
    let around: [NginxDirective]

    var location: NginxDirective { around[0] }

    /// Returns the rank of this location for a path, or nil if the path does not match.
    ///
    /// The highest rank has precedence; a prefix ranks by its length.
    func match(_ path: String) -> Int? {
        switch location.match {
        case .exact(let exact)?: exact == path ? 9_000 : nil
        case .pattern?: 0
        case .prefix(let prefix, _)?: path.hasPrefix(prefix) ? prefix.utf8.count : nil
        case .named?, nil: nil
        }
    }

    /// Returns the directives in effect: those with this name in the innermost block that has any.
    func values(of name: String) -> [NginxDirective] {
        around.lazy.map { ($0.block ?? []).filter { $0.name == name } }.first { !$0.isEmpty } ?? []
    }

    /// Returns the directive in effect with this name and, unless `first` is nil, this first parameter.
    func value(of name: String, _ first: String? = nil) -> NginxDirective? {
        for block in around {
            let found = (block.block ?? []).last {
                $0.name == name && (first == nil || $0.arguments.first == first)
            }
            if let found { return found }
            // A block does not inherit `fastcgi_pass`, and inherits `fastcgi_param` only if the block itself has none.
            if name == "fastcgi_pass" { return nil }
            if name == "fastcgi_param", block.block?.contains(where: { $0.name == name }) ?? false {
                return nil
            }
        }
        return nil
    }
}
