// The output of `nginx -T`, parsed into directives with file and line.
//
// Pure, except for reading password files.

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

    /// Returns the directives with this name in the block.
    func all(_ name: String) -> [NginxDirective] { (block ?? []).filter { $0.name == name } }

    /// Returns whether a server block listens on a port, and unless `addresses` is nil, at one of them.
    func listens(on port: UInt16, at addresses: [String]? = nil) -> Bool {
        let stated = all("listen").compactMap(\.arguments.first)
        return (stated.isEmpty ? ["80"] : stated).contains { text in
            // `80`, `192.0.2.1:80`, `[::1]:80`, `*:80`, `192.0.2.1` or `unix:…`.
            if let number = UInt16(text) { return number == port }
            let colon = text.hasSuffix("]") ? nil : text.lastIndex(of: ":")
            let own = colon.map { UInt16(text[text.index(after: $0)...]) ?? 0 } ?? 80
            let host = text[..<(colon ?? text.endIndex)].filter { !"[]".contains($0) }
            let isAny = ["*", "0.0.0.0", "::", "localhost"].contains(host)
            return own == port && (isAny || addresses?.contains(host) ?? true)
        }
    }
}

/// The configuration of one nginx: its main file and all included files.
package struct NginxDump: Sendable {
    /// The directives, with those of an included file in place of its `include`, as in nginx.
    let directives: [NginxDirective]
    /// All locations that pass uploads to a gateway, with their password files.
    let gateways: [NginxPlace]

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
        let main = parsed.first ?? ("", [])
        // Relative paths refer to the directory of the main file.
        let folder = main.0.lastIndex(of: "/").map { String(main.0[..<$0]) } ?? ""
        directives = Self.expand(main.1, from: parsed, folder: folder, depth: 0)
        let hasModule = directives.contains {
            $0.name == "load_module" && $0.text.contains("/ngx_http_interim_module.so")
        }
        gateways = Self.places(in: directives).filter { $0.isGateways && !$0.isAdmin }
            .map { place in
                var place = place
                place.loadsModule = hasModule
                let path = NginxLogin(at: place).passwordFile(below: folder)
                place.passwords = path.map(PasswordFile.read)
                return place
            }
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

    private static func places(in directives: [NginxDirective]) -> [NginxPlace] {
        func collect(_ around: [NginxDirective]) -> [NginxPlace] {
            (around[0].all("server") + around[0].all("location")).flatMap { inner in
                let place = NginxPlace(around: [inner] + around)
                return (inner.name == "location" ? [place] : []) + collect(place.around)
            }
        }
        return directives.filter { $0.name == "http" }.flatMap { collect([$0]) }
    }

    /// Returns whether a location passes requests to the admin socket at `path`.
    func servesAdmin(at path: String) -> Bool {
        Self.places(in: directives).contains { $0.socket == path }
    }

    /// Returns the location that passes requests for a URL to a gateway, if any.
    ///
    /// The server block is one with this port and name. If no block has the port, as behind a proxy that ends TLS, the
    /// name decides; if none has the name, any location is possible.
    func gateway(of path: String, host: String, port: UInt16) -> NginxPlace? {
        let servers = directives.filter { $0.name == "http" }.flatMap { $0.all("server") }
        let listening = servers.filter { $0.listens(on: port) }
        let all = listening.isEmpty ? servers : listening
        let named = all.filter { server in
            server.all("server_name").contains { $0.arguments.contains(host) }
        }
        return gateways.filter { place in
            path.hasPrefix(place.path)
                && (named.isEmpty ? all : named).contains { $0 == place.server }
        }.max { $0.path.utf8.count < $1.path.utf8.count }
    }
}

/// The grammar of nginx's files: words, quotes, comments, `;` and blocks.
struct NginxReader {
    private var rest: Substring
    private var line = 1
    private let file: String

    init(_ text: String, file: String) {
        rest = Substring(text)
        self.file = file
    }

    /// Parses the directives up to the end of the block or the file.
    mutating func directives() -> [NginxDirective] {
        var all: [NginxDirective] = []
        var words: [String] = []
        var start = 1
        while let character = next() {
            if ";{}".contains(character) { rest.removeFirst() }
            switch character {
            case "}": return all
            case ";", "{":
                let block = character == "{" ? directives() : nil
                if block != nil || !words.isEmpty {
                    all.append(NginxDirective(words: words, file: file, line: start, block: block))
                }
                words = []
            default:
                if words.isEmpty { start = line }
                words.append(word())
            }
        }
        return all
    }

    /// Skips white space and comments, and returns the next character.
    private mutating func next() -> Character? {
        while let character = rest.first, character.isWhitespace || character == "#" {
            if character == "\n" { line += 1 }
            rest = character == "#" ? rest.drop { $0 != "\n" } : rest.dropFirst()
        }
        return rest.first
    }

    private mutating func word() -> String {
        var word = ""
        let quote = rest.first.flatMap { "\"'".contains($0) ? $0 : nil }
        if quote != nil { rest.removeFirst() }
        while let character = rest.first {
            // `${name}` is part of a word; any other `{` begins a block.
            let isBlock = character == "{" && word.last != "$"
            if quote == nil, character.isWhitespace || character == ";" || isBlock { break }
            rest.removeFirst()
            if character == quote { break }
            if character == "\n" { line += 1 }
            // Before other characters, such as a dot in a regular expression, the backslash stays.
            if character == "\\", let escaped = rest.first, "\"'\\".contains(escaped) {
                word.append(rest.removeFirst())
            } else {
                word.append(character)
            }
        }
        return word
    }
}
