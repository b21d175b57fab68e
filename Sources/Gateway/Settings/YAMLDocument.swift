// A YAML document as a tree with the place of every node, read by libyaml's event interface.
//
// Only mappings, sequences and plain or quoted scalars are supported. Anchors, aliases, tags and second documents are
// errors, so that the text of a file is its meaning.

import CSpoolgateYAML

/// A place in a settings file; line and column are counted from 1.
package struct SourcePlace: Sendable, Equatable {
    package var line: Int
    package var column: Int
}

extension SourcePlace {
    /// Creates the place of the byte at `offset` in UTF-8 text; columns count characters, as in libyaml.
    init(of offset: Int, in text: some Collection<UInt8>) {
        self.init(line: 1, column: 1)
        for byte in text.prefix(offset) {
            if byte == UInt8(ascii: "\n") {
                line += 1
                column = 1
            } else if byte & 0xC0 != 0x80 {
                column += 1
            }
        }
    }
}

/// The reason why settings are refused, as one sentence, and the place of the error.
package struct SettingsError: Error, Sendable, Equatable, CustomStringConvertible {
    /// The file's name as the operator gave it, or the name of an environment variable.
    package var file: String
    /// The place of the error, or nil if it is in an environment variable.
    package var place: SourcePlace?
    /// The fault and its correction.
    package var reason: String

    /// The error in one line, such as `settings.yaml:12:5: reason` or `SPOOLGATE_LISTEN: reason`.
    package var description: String {
        let place = place.map { ":\($0.line):\($0.column)" } ?? ""
        return "\(file)\(place): \(reason)"
    }
}

struct YAMLNode {
    enum Content {
        /// `isPlain` is true if the scalar is not quoted, so that `80` differs from `"80"`.
        case scalar(String, isPlain: Bool)
        case mapping([(key: String, place: SourcePlace, value: YAMLNode)])
        case sequence([YAMLNode])
    }

    var content: Content
    var place: SourcePlace

    /// Whether the node has no value: an empty plain scalar, `~` or `null`.
    var isNull: Bool {
        guard case .scalar(let text, isPlain: true) = content else { return false }
        return text.isEmpty || text == "~" || text == "null"
    }
}

struct YAMLDocument: ~Copyable {
    /// The maximum depth of nodes, limited because parsing is recursive.
    ///
    /// Settings need only four levels.
    private static let depthLimit = 16

    private let file: String
    private let text: [UInt8]
    private let parser: UnsafeMutablePointer<yaml_parser_t>

    /// Returns the root node, or nil if the text contains no document.
    static func root(of text: String, file: String) throws(SettingsError) -> YAMLNode? {
        let document = YAMLDocument(text, file: file)
        return try document.read()
    }

    private init(_ text: String, file: String) {
        self.file = file
        self.text = Array(text.utf8)
        parser = .allocate(capacity: 1)
        yaml_parser_initialize(parser)
    }

    deinit {
        yaml_parser_delete(parser)
        parser.deallocate()
    }

    private borrowing func read() throws(SettingsError) -> YAMLNode? {
        // libyaml keeps the pointer to the input, which must outlive the parse.
        let input = UnsafeMutableBufferPointer<UInt8>.allocate(capacity: max(text.count, 1))
        defer { input.deallocate() }
        _ = input.initialize(from: text)
        yaml_parser_set_input_string(parser, input.baseAddress, text.count)
        try expect(YAML_STREAM_START_EVENT)
        let first = try next()
        guard first.kind == YAML_DOCUMENT_START_EVENT else { return nil }
        let root = try node(next(), depth: 0)
        try expect(YAML_DOCUMENT_END_EVENT)
        let last = try next()
        guard last.kind == YAML_STREAM_END_EVENT else {
            throw fault(last.place, "unexpected second YAML document; use a single document")
        }
        return root
    }

    /// One parser event, copied from libyaml's memory.
    private struct Event {
        var kind: yaml_event_type_t
        var place: SourcePlace
        var text = ""
        var isPlain = false
        var isDecorated = false
    }

    private borrowing func next() throws(SettingsError) -> Event {
        var raw = yaml_event_t()
        guard yaml_parser_parse(parser, &raw) == 1 else {
            let problem = parser.pointee.problem.map { String(cString: $0) } ?? "invalid syntax"
            // Errors in the encoding have no mark, only an offset.
            let place =
                parser.pointee.error == YAML_READER_ERROR
                ? SourcePlace(of: parser.pointee.problem_offset, in: text)
                : Self.place(parser.pointee.problem_mark)
            // libyaml does not mention that the character is a tab.
            let isTab = problem.hasPrefix("found character that cannot start any token")
            throw fault(
                place,
                "invalid YAML: \(problem)\(isTab ? "; indent with spaces, not with tabs" : "")"
            )
        }
        defer { yaml_event_delete(&raw) }
        var event = Event(kind: raw.type, place: Self.place(raw.start_mark))
        switch raw.type {
        case YAML_SCALAR_EVENT:
            let scalar = raw.data.scalar
            event.text = String(
                decoding: UnsafeBufferPointer(start: scalar.value, count: scalar.length),
                as: UTF8.self
            )
            event.isPlain = scalar.style == YAML_PLAIN_SCALAR_STYLE
            event.isDecorated = scalar.anchor != nil || scalar.tag != nil
        case YAML_MAPPING_START_EVENT:
            let start = raw.data.mapping_start
            event.isDecorated = start.anchor != nil || start.tag != nil
        case YAML_SEQUENCE_START_EVENT:
            let start = raw.data.sequence_start
            event.isDecorated = start.anchor != nil || start.tag != nil
        default: event.isDecorated = raw.type == YAML_ALIAS_EVENT
        }
        guard !event.isDecorated else {
            throw fault(event.place, "anchors, aliases and tags are not supported")
        }
        return event
    }

    private borrowing func expect(_ kind: yaml_event_type_t) throws(SettingsError) {
        let event = try next()
        guard event.kind == kind else {
            throw fault(event.place, "not a single YAML document")
        }
    }

    private borrowing func node(_ event: Event, depth: Int) throws(SettingsError) -> YAMLNode {
        guard depth < Self.depthLimit else { throw fault(event.place, "nested too deeply") }
        switch event.kind {
        case YAML_SCALAR_EVENT:
            return YAMLNode(
                content: .scalar(event.text, isPlain: event.isPlain),
                place: event.place
            )
        case YAML_SEQUENCE_START_EVENT:
            var items: [YAMLNode] = []
            while true {
                let item = try next()
                if item.kind == YAML_SEQUENCE_END_EVENT { break }
                items.append(try node(item, depth: depth + 1))
            }
            return YAMLNode(content: .sequence(items), place: event.place)
        case YAML_MAPPING_START_EVENT:
            var entries: [(key: String, place: SourcePlace, value: YAMLNode)] = []
            while true {
                let key = try next()
                if key.kind == YAML_MAPPING_END_EVENT { break }
                guard key.kind == YAML_SCALAR_EVENT else {
                    throw fault(key.place, "a key must be a plain word")
                }
                if let first = entries.first(where: { $0.key == key.text }) {
                    throw fault(
                        key.place,
                        "duplicate key '\(key.text)', first used in line \(first.place.line); "
                            + "merge the two"
                    )
                }
                entries.append((key.text, key.place, try node(next(), depth: depth + 1)))
            }
            return YAMLNode(content: .mapping(entries), place: event.place)
        default:
            throw fault(event.place, "not a single YAML document")
        }
    }

    private borrowing func fault(_ place: SourcePlace, _ reason: String) -> SettingsError {
        SettingsError(file: file, place: place, reason: reason)
    }

    private static func place(_ mark: yaml_mark_t) -> SourcePlace {
        SourcePlace(line: Int(mark.line) + 1, column: Int(mark.column) + 1)
    }
}
