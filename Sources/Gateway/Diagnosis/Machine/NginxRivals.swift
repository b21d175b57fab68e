// Which other locations of nginx take names below the one that hands uploads to the gateway.
//
// Pure. nginx chooses the longest prefix, and then a regular expression wins over it, unless the prefix stands
// behind `^~`. So one for `.php` or for images takes `/files/photo.jpg`, while the directory itself is fine.

/// Which paths a location is for.
enum NginxMatch: Equatable {
    /// `location = /files/`: one path.
    case exact(String)
    /// `location /files/`: all paths that begin so; `isFinal`: `^~`, and no regular expression beside it is tried.
    case prefix(String, isFinal: Bool)
    /// `location ~ \.php$`, or `~*`, which ignores case.
    case pattern(String, ignoresCase: Bool)
    /// `location @name`: none.
    case named

    /// Reads the parameters of a location; nginx takes the modifier also without a space behind it.
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
    /// Which paths it is for, where it is a location.
    var match: NginxMatch? { name == "location" ? NginxMatch(arguments) : nil }

    /// Whether it is a location that hands something to the gateway.
    var isGateways: Bool {
        guard let block, block.contains(where: { $0.name == "fastcgi_pass" }) else { return false }
        return block.contains {
            $0.name == "fastcgi_param" && $0.arguments.first?.hasPrefix("SPOOLGATE_") ?? false
        }
    }
}

extension NginxPlace {
    /// Where a rival stands, by which it is mended.
    enum Standing {
        /// Beside this location, which `^~` puts first.
        case beside
        /// Around this location: that of a block which it stands in.
        case around
        /// In this location, where `^~` changes nothing.
        case inside
    }

    /// A location that takes what belongs to this one.
    struct Rival {
        /// It.
        var location: NginxDirective
        /// Where it stands.
        var place: Standing
        /// A path that it takes; nil: none is known, and there are some.
        var path: String?
    }

    /// The locations by a regular expression that take paths from this one.
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
                // The first one that fits is taken, and none further out is tried.
                found += Self.patterns(in: parent.block, before: child).map { ($0, standing) }
                return Self.rivals(found, below: prefix)
            case .exact, .named: return []
            }
        }
        return Self.rivals(found, below: prefix)
    }

    /// Where this location is one by a regular expression itself: those before it, the first of which wins.
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

    /// What is to be said of the locations that take names below this one.
    var rivalFaults: [Finding] {
        rivals.map { rival in
            let own = location.arguments.joined(separator: " ")
            let names = rival.path ?? "some paths"
            let first = "location ^~ \(path) {"
            let mend =
                switch rival.place {
                case .beside: "\(first)   (in place of location \(own) { at \(location.place))"
                case .around: "\(first)   (in the server block itself, not inside another location)"
                case .inside: "move it out of location \(own)"
                }
            return .failure(
                "nginx",
                "location \(rival.location.arguments.joined(separator: " ")) at "
                    + "\(rival.location.place) takes \(names) from location \(own)",
                [mend]
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

/// A regular expression of a location.
struct LocationPattern {
    /// What it takes below a prefix.
    enum Taken: Equatable {
        case none
        case path(String)
        /// Something, of which no example was found.
        case some
    }

    let text: String
    let ignoresCase: Bool

    /// Endings that people give to files and servers have locations for.
    private static let endings = [
        "php", "jpg", "jpeg", "png", "gif", "webp", "svg", "ico", "css", "js", "mjs", "map", "json",
        "xml", "html",
        "htm", "txt", "pdf", "zip", "gz", "tar", "tgz", "rar", "7z", "mp3", "mp4", "mov", "mkv",
        "avi", "webm", "ogg",
        "doc", "docx", "xls", "xlsx", "ppt", "pptx", "odt", "csv", "woff", "woff2", "ttf", "eot",
        "swf", "asp", "aspx",
        "jsp", "cgi", "pl", "py", "sh", "sql", "log", "ini", "bak", "phtml", "phar",
    ]

    /// What it takes of the paths that begin with `prefix`.
    func takes(below prefix: String) -> Taken {
        let folder = prefix.hasSuffix("/") ? prefix : prefix + "/"
        guard let regex = try? Regex(text).ignoresCase(ignoresCase) else { return guess }
        let path = paths(below: folder).first { path in
            // `try?`: what cannot be matched is not taken.
            (try? regex.firstMatch(in: path)) != nil
        }
        return path.map { .path($0) } ?? guess
    }

    /// Where no example was found: an expression that may begin anywhere takes some name of every directory.
    private var guess: Taken { text.contains("^") || text.contains("(?") ? .none : .some }

    /// Paths to try, those that people understand first.
    private func paths(below folder: String) -> [String] {
        let words = words
        var names = (Self.endings + words).map { "x." + $0 } + words
        for word in words { names += ["." + word, word + "/x", "x/" + word + "/x"] }
        names += ["x", ".x", "x.php/x", "x/x.X"]
        names += ["upload-resource/" + String(repeating: "0", count: 26)]
        for count in 1...8 { names.append("12345678".prefix(count) + "/x") }
        return names.map { folder + $0 }
    }

    /// The words in the expression, with and without a letter that may be left out.
    private var words: [String] {
        let without = text.replacing(/\w\?/, with: "")
        return [text.replacing("?", with: ""), without].flatMap { text in
            text.split { !($0.isLetter || $0.isNumber || $0 == "_" || $0 == "-") }.map(String.init)
        }
    }

    /// The path that all matches of an expression begin with; nil where it may begin anywhere.
    static func literal(_ text: String) -> String? {
        guard text.hasPrefix("^/") else { return nil }
        var path = ""
        var rest = text.dropFirst()
        while let character = rest.popFirst() {
            if character == "\\" {
                guard let next = rest.popFirst(), !next.isLetter, !next.isNumber else { break }
                path.append(next)
            } else if ".*?+()[]{}|$".contains(character) {
                // What may be left out, or come again, is not surely there.
                if "*?{".contains(character), !path.isEmpty { path.removeLast() }
                break
            } else {
                path.append(character)
            }
        }
        return text.contains("|") && !text.contains("(") ? nil : path
    }
}
