// Locations of nginx that get requests meant for the gateway's locations.
//
// Pure. A location with a regular expression has precedence over the one with the longest prefix, unless the prefix has
// `^~`. A location for images thus gets requests for `/files/photo.jpg`.

/// The paths that a location matches.
enum NginxMatch: Equatable {
    /// `location = /files/` matches one path.
    case exact(String)
    /// `location /files/`; if `isFinal` (`^~`), nginx does not try regular expressions at the same level.
    case prefix(String, isFinal: Bool)
    /// `location ~ \.php$`, or `~*`, which ignores case.
    case pattern(String, ignoresCase: Bool)
    /// `location @name` matches no path.
    case named

    /// Parses the parameters of a `location` directive; the modifier need not be followed by a space.
    init(_ words: ArraySlice<String>) {
        var modifier = words.first ?? ""
        var rest = words.last ?? ""
        if words.count < 2 {
            modifier = ["^~", "~*", "~", "="].first { modifier.hasPrefix($0) } ?? ""
            rest = String(rest.dropFirst(modifier.count))
        }
        switch modifier {
        case "=": self = .exact(rest)
        case "~": self = .pattern(rest, ignoresCase: false)
        case "~*": self = .pattern(rest, ignoresCase: true)
        default:
            self =
                rest.hasPrefix("@") ? .named : .prefix(rest, isFinal: modifier == "^~")
        }
    }
}

extension NginxDirective {
    var match: NginxMatch? { name == "location" ? NginxMatch(arguments) : nil }

    /// Whether this location passes requests to the gateway.
    var isGateways: Bool {
        guard let block, block.contains(where: { $0.name == "fastcgi_pass" }) else { return false }
        return block.contains {
            $0.name == "fastcgi_param" && $0.arguments.first?.hasPrefix("SPOOLGATE_") ?? false
        }
    }
}

extension NginxPlace {
    /// The position of a rival relative to this location.
    enum Standing {
        /// The rival is at the same level. `^~` would give this location precedence.
        case beside
        /// The rival is at the level of an enclosing location.
        case around
        /// The rival is inside this location. `^~` would have no effect.
        case inside
    }

    /// A location with a regular expression that gets requests meant for this one.
    struct Rival {
        var location: NginxDirective
        var place: Standing
        /// An example of a path that the rival gets, or nil if none is known.
        var path: String?
    }

    var rivals: [Rival] {
        guard case .prefix(let prefix, _)? = location.match else { return patternsBefore }
        var found = Self.patterns(in: location.block).map { ($0, Standing.inside) }
        for (child, parent) in zip(around, around.dropFirst()) {
            guard let match = child.match else { break }
            let standing = child == location ? Standing.beside : .around
            let patterns = Self.patterns(in: parent.block)
            switch match {
            case .prefix(_, isFinal: true): continue
            case .prefix: found += patterns.map { ($0, standing) }
            case .pattern:
                // nginx uses the first match and tries no expression of an outer block.
                found += Self.patterns(in: parent.block, before: child).map { ($0, standing) }
                return Self.rivals(found, below: prefix)
            case .exact, .named: return []
            }
        }
        return Self.rivals(found, below: prefix)
    }

    /// The rivals of a location with a regular expression: earlier locations, because nginx uses the first match.
    private var patternsBefore: [Rival] {
        guard case .pattern(let own, _)? = location.match, around.count > 1,
            let prefix = LocationPattern.literal(own)
        else { return [] }
        let before = Self.patterns(in: around[1].block, before: location)
        return Self.rivals(before.map { ($0, .beside) }, below: prefix)
    }

    private static func patterns(
        in block: [NginxDirective]?,
        before location: NginxDirective? = nil
    ) -> [NginxDirective] {
        (block ?? []).prefix { $0 != location }.filter { directive in
            guard case .pattern? = directive.match else { return false }
            return !directive.isGateways
        }
    }

    private static func rivals(
        _ candidates: [(NginxDirective, Standing)],
        below prefix: String
    ) -> [Rival] {
        candidates.compactMap { location, standing in
            guard case .pattern(let text, let ignoresCase)? = location.match else { return nil }
            switch LocationPattern(text: text, ignoresCase: ignoresCase).takes(below: prefix) {
            case .path(let path):
                return Rival(location: location, place: standing, path: path)
            case .some: return Rival(location: location, place: standing, path: nil)
            case .none: return nil
            }
        }
    }

    var rivalFaults: [Finding] {
        rivals.map { rival in
            let own = location.arguments.joined(separator: " ")
            let names = rival.path ?? "some paths"
            let first = "location ^~ \(path) {"
            let fix =
                switch rival.place {
                case .beside: "\(first)   (in place of location \(own) { at \(location.place))"
                case .around: "\(first)   (in the server block itself, not inside another location)"
                case .inside: "move it out of location \(own)"
                }
            return .failure(
                "nginx",
                "location \(rival.location.arguments.joined(separator: " ")) at "
                    + "\(rival.location.place) takes \(names) from location \(own)",
                [fix]
            )
        }
    }

    /// The path of this location without its modifier.
    var path: String {
        switch location.match {
        case .prefix(let path, _)?, .exact(let path)?: path
        case .pattern(let pattern, _)?: LocationPattern.literal(pattern) ?? "/"
        default: "/"
        }
    }
}

struct LocationPattern {
    /// Which paths below a prefix an expression matches.
    enum Taken: Equatable {
        case none
        case path(String)
        /// The expression matches some paths, but no example is known.
        case some
    }

    let text: String
    let ignoresCase: Bool

    private static let endings = [
        "php", "jpg", "jpeg", "png", "gif", "webp", "svg", "ico", "css", "js", "mjs", "map", "json",
        "xml", "html",
        "htm", "txt", "pdf", "zip", "gz", "tar", "tgz", "rar", "7z", "mp3", "mp4", "mov", "mkv",
        "avi", "webm", "ogg",
        "doc", "docx", "xls", "xlsx", "ppt", "pptx", "odt", "csv", "woff", "woff2", "ttf", "eot",
        "swf", "asp", "aspx",
        "jsp", "cgi", "pl", "py", "sh", "sql", "log", "ini", "bak", "phtml", "phar",
    ]

    /// Returns whether the expression matches paths below `prefix`, with an example if any.
    func takes(below prefix: String) -> Taken {
        let folder = prefix.hasSuffix("/") ? prefix : prefix + "/"
        guard let regex = try? Regex(text).ignoresCase(ignoresCase) else { return guess }
        let path = paths(below: folder).first { path in
            // `try?`: an expression that cannot be evaluated matches no path.
            (try? regex.firstMatch(in: path)) != nil
        }
        return path.map { .path($0) } ?? guess
    }

    /// The result if no example is known.
    ///
    /// An expression that is not anchored is assumed to match.
    private var guess: Taken { text.contains("^") || text.contains("(?") ? .none : .some }

    /// Returns paths to try, the most common names first.
    private func paths(below folder: String) -> [String] {
        let words = words
        var names = (Self.endings + words).map { "x." + $0 } + words
        for word in words { names += ["." + word, word + "/x", "x/" + word + "/x"] }
        names += ["x", ".x", "x.php/x", "x/x.X"]
        names += ["upload-resource/" + String(repeating: "0", count: 26)]
        for count in 1...8 { names.append("12345678".prefix(count) + "/x") }
        return names.map { folder + $0 }
    }

    /// The words in the regular expression, with and without its optional letters: `jpeg` and `jpg` for `jpe?g`.
    private var words: [String] {
        let without = text.replacing(/\w\?/, with: "")
        return [text.replacing("?", with: ""), without].flatMap { text in
            text.split { !($0.isLetter || $0.isNumber || $0 == "_" || $0 == "-") }.map(String.init)
        }
    }

    /// Returns the common prefix of all matching paths, or nil if the expression is not anchored at the start.
    static func literal(_ text: String) -> String? {
        guard text.hasPrefix("^/") else { return nil }
        var path = ""
        var rest = text.dropFirst()
        while let character = rest.popFirst() {
            if character == "\\" {
                guard let next = rest.popFirst(), !next.isLetter, !next.isNumber else { break }
                path.append(next)
            } else if ".*?+()[]{}|$".contains(character) {
                // An optional or repeated character may be absent.
                if "*?{".contains(character), !path.isEmpty { path.removeLast() }
                break
            } else {
                path.append(character)
            }
        }
        return text.contains("|") && !text.contains("(") ? nil : path
    }
}
