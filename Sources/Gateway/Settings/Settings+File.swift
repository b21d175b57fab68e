// Decodes settings from a file, and from environment variables that override it.
//
// Decoding is strict: an unknown key, or a value of the wrong kind, is an error with its place.

package import SpoolgatePosix
import SpoolgateUpstream

extension Settings {
    /// The maximum size of a file in bytes.
    private static let fileLimit = 1 << 20

    /// Reads settings from a file and from environment variables, which override the file.
    ///
    /// Without a `path`, only environment variables and defaults apply. `environment` must return nil for a variable
    /// that is not set.
    ///
    /// - Throws: `SettingsFault.unreadable` if the file cannot be read; `.wrong`, with the line and column or the
    ///   variable, if a key or value is invalid.
    package static func load(
        _ path: String?,
        environment: (String) -> String? = { _ in nil }
    ) throws(SettingsFault) -> Settings {
        var text = ""
        if let path {
            do {
                text = try TextFile.read(path, limit: fileLimit)
            } catch {
                throw .unreadable(error)
            }
        }
        do throws(SettingsError) {
            if let path { try requireUTF8(text, file: path) }
            let given = try SettingsVariable.given(in: environment)
            if path == nil, given.isEmpty { return Settings() }
            return try Settings(text, file: path ?? "", given)
        } catch {
            throw .wrong(error)
        }
    }

    /// Throws an error if the file contained invalid UTF-8, which was replaced by U+FFFD when the file was read.
    ///
    /// Otherwise a wrong path would be used silently.
    private static func requireUTF8(_ text: String, file: String) throws(SettingsError) {
        guard let scalars = text.unicodeScalars.firstIndex(of: "\u{FFFD}") else { return }
        let offset = text.utf8.distance(from: text.startIndex, to: scalars)
        throw SettingsError(
            file: file,
            place: SourcePlace(of: offset, in: text.utf8),
            reason: "the file is not UTF-8; save it as UTF-8"
        )
    }

    /// Decodes the text of a settings file.
    ///
    /// Missing settings keep their defaults, but only the routes and upstreams in the text exist.
    package init(_ text: String, file: String) throws(SettingsError) {
        try self.init(text, file: file, [])
    }

    private init(
        _ text: String,
        file: String,
        _ given: [(variable: SettingsVariable, value: SettingsValue)]
    ) throws(SettingsError) {
        self.init()
        variables = given.map(\.variable)
        var missing = RouteSettings()
        missing.upstream.targets = []
        routes = [RouteSettings.defaultName: missing]
        var values: [String: SettingsValue] = [:]
        if let root = try YAMLDocument.root(of: text, file: file) {
            values = try SettingsValue(file: file, name: "", node: root)
                .values(of: Self.keys.map(\.name) + ["routes"], &ignored)
        }
        var givenToRoute: [String: SettingsValue] = [:]
        for (variable, value) in given {
            if variable.key.hasPrefix(SettingsVariable.routePrefix) {
                let key = variable.key.dropFirst(SettingsVariable.routePrefix.count)
                givenToRoute[String(key)] = value
            } else {
                values[variable.key] = value
            }
        }
        try SettingsKey.take(values, by: Self.keys, into: &self)
        var named: [(name: String, section: SettingsValue?)] =
            try values["routes"]?.sections().map { ($0.key, $0.value) } ?? []
        if !givenToRoute.isEmpty, !named.contains(where: { $0.name == RouteSettings.defaultName }) {
            named.append((RouteSettings.defaultName, nil))
        }
        if !named.isEmpty { routes = [:] }
        for (name, section) in named {
            var route = missing
            var values = try section?.values(of: RouteSettings.keys.map(\.name), &ignored) ?? [:]
            if name == RouteSettings.defaultName { values.merge(givenToRoute) { $1 } }
            try SettingsKey.take(values, by: RouteSettings.keys, into: &route)
            if let (key, reason) = route.contradiction, let value = values[key] {
                throw value.fault("'\(try value.scalar(else: reason))': \(reason)")
            }
            routes[name] = route
        }
        if let (key, reason) = contradiction, let value = values[key] { throw value.fault(reason) }
    }
}

/// Why settings cannot be loaded.
package enum SettingsFault: Error, Sendable, Equatable, CustomStringConvertible {
    case unreadable(SystemError)
    case wrong(SettingsError)

    package var description: String {
        switch self {
        case .unreadable(let error): "cannot read the settings: \(error)"
        case .wrong(let error): error.description
        }
    }
}

/// The value of a key or section in a file or an environment variable.
struct SettingsValue {
    /// The name of the file or environment variable, for error messages.
    let file: String
    /// The dotted key, such as `limits.max-size`, for error messages; empty for the whole file.
    let name: String
    let node: YAMLNode
    /// Whether errors state a line and column; false for an environment variable.
    var hasPlaces = true

    func fault(_ reason: String) -> SettingsError {
        error("\(name): \(reason)")
    }

    private func error(_ reason: String) -> SettingsError {
        SettingsError(file: file, place: hasPlaces ? node.place : nil, reason: reason)
    }

    private func part(_ name: String, _ node: YAMLNode) -> SettingsValue {
        SettingsValue(file: file, name: name, node: node, hasPlaces: hasPlaces)
    }

    /// Returns the text of a scalar; for any other value, throws an error with `reason`.
    func scalar(else reason: String) throws(SettingsError) -> String {
        guard case .scalar(let text, _) = node.content else { throw fault(reason) }
        return text
    }

    /// The items of a list; a value of any other kind counts as a list with one item.
    var listed: [SettingsValue] {
        guard case .sequence(let nodes) = node.content else { return [self] }
        return nodes.map { part(name, $0) }
    }

    /// Returns a mapping's entries in the order of the file, each with its key's place.
    ///
    /// For a value of any other kind, throws an error with the sentence `words`.
    func entries(
        else words: String
    ) throws(SettingsError) -> [(key: String, place: SourcePlace, value: SettingsValue)] {
        guard case .mapping(let entries) = node.content else {
            throw error(words)
        }
        return entries.map { key, place, node in
            let name = name.isEmpty ? key : "\(name).\(key)"
            return (key, place, part(name, node))
        }
    }

    /// Returns the entries of a section, or no entries if the section has no value.
    func sections()
        throws(SettingsError) -> [(key: String, place: SourcePlace, value: SettingsValue)]
    {
        guard !node.isNull else { return [] }
        return try entries(
            else: "\(name.isEmpty ? "the settings" : name) must be a mapping of keys to values"
        )
    }

    private static func advice(on key: String, of known: [String], isTop: Bool) -> String {
        if known.contains(key), let dot = key.lastIndex(of: ".") {
            let (section, name) = (key[..<dot], key[key.index(after: dot)...])
            return "write \(name): on its own line below \(section):"
        }
        if isTop, RouteSettings.keys.contains(where: { ($0.name + ".").hasPrefix(key + ".") }) {
            return "it is a route setting: write it below routes: and the route's name"
        }
        let words = known.map { $0.prefix { $0 != "." } }
        let choice = words.enumerated().filter { words.firstIndex(of: $1) == $0 }.map(\.1)
        let near = choice.filter { MistypedWord.isLike(key, $0) }
        if near.count == 1 { return "did you mean \(near[0])?" }
        return "valid settings: " + choice.joined(separator: ", ")
    }

    /// Returns the values in a section by dotted key, without keys that have no value.
    ///
    /// `known` must contain all dotted keys of the section. Lines with removed settings are appended to `ignored`; an
    /// unknown key is an error.
    func values(
        of known: [String],
        _ ignored: inout [SettingsError]
    ) throws(SettingsError) -> [String: SettingsValue] {
        var values: [String: SettingsValue] = [:]
        for (key, place, value) in try sections() {
            let below = known.filter { $0.hasPrefix("\(key).") }
                .map { String($0.dropFirst(key.count + 1)) }
            if known.contains(key), !key.contains(".") {
                values[key] = value.node.isNull ? nil : value
            } else if !below.isEmpty, !key.contains(".") {
                for (name, value) in try value.values(of: below, &ignored) {
                    values["\(key).\(name)"] = value
                }
            } else if let removed = Settings.removed.first(where: { value.name.hasSuffix($0.key) })
            {
                let fact =
                    "this setting was removed and is ignored: \(removed.value); remove the line"
                ignored.append(value.fault(fact))
            } else {
                throw SettingsError(
                    file: file,
                    place: place,
                    reason: "\(value.name): unknown setting; "
                        + Self.advice(on: key, of: known, isTop: value.name == key)
                )
            }
        }
        return values
    }
}
