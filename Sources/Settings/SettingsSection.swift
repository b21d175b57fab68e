// One mapping of a settings file, read key by key, strictly.
//
// A key that nobody asked for, a value of the wrong kind or out of range is an error with its place.

import Posix
import TextFormats
import UploadProtocol

/// The keys of one mapping, taken one after the other; `finish()` refuses what is left.
package struct SettingsSection {
    private let file: String
    /// Dotted path of the section, empty for the root; part of every error.
    private let path: String
    private let place: SourcePlace
    private var entries: [(key: String, place: SourcePlace, value: YAMLNode)]
    private var asked: [String] = []

    init(_ node: YAMLNode?, file: String, path: String) throws(SettingsError) {
        self.file = file
        self.path = path
        place = node?.place ?? SourcePlace(line: 1, column: 1)
        entries = []
        guard let node, !node.isNull else { return }
        guard case .mapping(let entries) = node.content else {
            throw SettingsError(
                file: file,
                place: node.place,
                reason: "\(path.isEmpty ? "the settings" : path) must be keys with values"
            )
        }
        self.entries = entries
    }

    /// The node of a key, null counting as absent.
    private mutating func take(_ key: String) -> YAMLNode? {
        asked.append(key)
        guard let index = entries.firstIndex(where: { $0.key == key }) else { return nil }
        let value = entries.remove(at: index).value
        return value.isNull ? nil : value
    }

    private func name(_ key: String) -> String { path.isEmpty ? key : "\(path).\(key)" }

    /// An error at a node.
    func fault(_ node: YAMLNode, _ key: String, _ reason: String) -> SettingsError {
        SettingsError(file: file, place: node.place, reason: "\(name(key)): \(reason)")
    }

    /// A nested section; empty where the key is absent.
    mutating func section(_ key: String) throws(SettingsError) -> SettingsSection {
        try SettingsSection(take(key), file: file, path: name(key))
    }

    /// Every nested section by name, in the file's order.
    mutating func namedSections() throws(SettingsError) -> [(
        name: String, section: SettingsSection
    )] {
        var sections: [(name: String, section: SettingsSection)] = []
        for entry in entries {
            sections.append(
                (entry.key, try SettingsSection(entry.value, file: file, path: name(entry.key)))
            )
        }
        entries = []
        return sections
    }

    /// A value read from a scalar's text by `read`, which gives nil for what it cannot take.
    mutating func value<T>(
        _ key: String,
        expecting: String,
        _ read: (String) -> T?
    ) throws(SettingsError) -> T? {
        guard let node = take(key) else { return nil }
        guard case .scalar(let text, _) = node.content else {
            throw fault(node, key, "expected \(expecting)")
        }
        guard let value = read(text) else {
            throw fault(node, key, "'\(text)' is not \(expecting)")
        }
        return value
    }

    /// A value whose reader says itself what is wrong with a text.
    mutating func value<T, Reason: Error>(
        _ key: String,
        reason: (Reason) -> String,
        _ read: (String) throws(Reason) -> T
    ) throws(SettingsError) -> T? {
        guard let node = take(key) else { return nil }
        guard case .scalar(let text, _) = node.content else {
            throw fault(node, key, "expected one text")
        }
        do {
            return try read(text)
        } catch {
            throw fault(node, key, "'\(text)': \(reason(error))")
        }
    }

    /// A list of values; one value alone is a list of one.
    mutating func values<T>(
        _ key: String,
        expecting: String,
        _ read: (String) -> T?
    ) throws(SettingsError) -> [T]? {
        guard let texts = try texts(key, expecting: expecting) else { return nil }
        var values: [T] = []
        for (text, node) in texts.listed {
            guard let value = read(text) else {
                throw fault(node, key, "'\(text)' is not \(expecting)")
            }
            values.append(value)
        }
        return values
    }

    /// A list of values, at least one, whose reader says itself what is wrong with a text; one value
    /// alone is a list of one.
    ///
    /// The reader is given those that stand before.
    mutating func values<T, Reason: Error>(
        _ key: String,
        reason: (Reason) -> String,
        _ read: (_ text: String, _ before: [T]) throws(Reason) -> T
    ) throws(SettingsError) -> [T]? {
        guard let texts = try texts(key, expecting: "one text") else { return nil }
        var values: [T] = []
        for (text, node) in texts.listed {
            do {
                values.append(try read(text, values))
            } catch {
                throw fault(node, key, "'\(text)': \(reason(error))")
            }
        }
        guard !values.isEmpty else { throw fault(texts.list, key, "expected at least one") }
        return values
    }

    /// The texts of a list, each with its node, and the node of the list.
    private mutating func texts(
        _ key: String,
        expecting: String
    ) throws(SettingsError) -> (list: YAMLNode, listed: [(String, YAMLNode)])? {
        guard let node = take(key) else { return nil }
        var nodes = [node]
        if case .sequence(let listed) = node.content { nodes = listed }
        var texts: [(String, YAMLNode)] = []
        for node in nodes {
            guard case .scalar(let text, _) = node.content else {
                throw fault(node, key, "expected \(expecting), or a list of such")
            }
            texts.append((text, node))
        }
        return (node, texts)
    }

    /// A mapping of the operator's own names to values, in the file's order.
    mutating func pairs<T>(
        _ key: String,
        expecting: String,
        _ read: (_ name: String, _ text: String) -> T?
    ) throws(SettingsError) -> [T]? {
        guard let node = take(key) else { return nil }
        guard case .mapping(let entries) = node.content else {
            throw fault(node, key, "must be names with values")
        }
        var pairs: [T] = []
        for entry in entries {
            guard case .scalar(let text, _) = entry.value.content,
                let pair = read(entry.key, text)
            else { throw fault(entry.value, "\(key).\(entry.key)", "expected \(expecting)") }
            pairs.append(pair)
        }
        return pairs
    }

    /// A text; not empty.
    mutating func text(_ key: String) throws(SettingsError) -> String? {
        try value(key, expecting: "a text") { $0.isEmpty ? nil : $0 }
    }

    /// An absolute path.
    mutating func path(_ key: String) throws(SettingsError) -> String? {
        try value(key, expecting: "an absolute path without control characters") {
            $0.isAbsolutePath ? $0 : nil
        }
    }

    /// An integer within a range.
    mutating func integer(_ key: String, in range: ClosedRange<Int>) throws(SettingsError) -> Int? {
        let expecting = "a whole number from \(range.lowerBound) to \(range.upperBound)"
        return try value(key, expecting: expecting) { text in
            Int(text).flatMap { range.contains($0) ? $0 : nil }
        }
    }

    /// `true` or `false`.
    mutating func boolean(_ key: String) throws(SettingsError) -> Bool? {
        try value(key, expecting: "true or false") { Bool($0) }
    }

    /// A size in bytes, within a range.
    mutating func size(_ key: String, in range: ClosedRange<Int64>) throws(SettingsError) -> Int64?
    {
        let expecting =
            "a size from \(ByteSize.text(range.lowerBound)) to \(ByteSize.text(range.upperBound)), "
            + "such as 64KiB or 16GiB"
        return try value(key, expecting: expecting) { text in
            ByteSize.read(text).flatMap { range.contains($0) ? $0 : nil }
        }
    }

    /// A duration, within a range of seconds; where `allowsZero`, zero too.
    mutating func duration(
        _ key: String,
        seconds range: ClosedRange<Int64>,
        allowsZero: Bool = false
    ) throws(SettingsError) -> Duration? {
        let expecting =
            "\(allowsZero ? "0s, or " : "")a duration from \(range.lowerBound)s to "
            + "\(range.upperBound)s, such as 30s or 24h"
        return try value(key, expecting: expecting) { text in
            guard let duration = DurationText.read(text) else { return nil }
            if allowsZero, duration == .zero { return duration }
            guard duration >= .seconds(range.lowerBound), duration <= .seconds(range.upperBound)
            else { return nil }
            return duration
        }
    }

    /// Refuses keys that were never asked for.
    func finish() throws(SettingsError) {
        guard let entry = entries.first else { return }
        throw SettingsError(
            file: file,
            place: entry.place,
            reason: "\(name(entry.key)): no such setting; known here: "
                + asked.joined(separator: ", ")
        )
    }
}
