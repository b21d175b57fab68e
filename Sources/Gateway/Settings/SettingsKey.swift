// One row of a table of settings: the reading, printing and reloading of one key.

struct SettingsKey<Root>: Sendable {
    typealias Path<Value> = any WritableKeyPath<Root, Value> & Sendable

    /// The dotted key, such as `spool.reserve`.
    let name: String
    /// Whether a change takes effect only after a restart.
    let needsRestart: Bool
    /// Returns the value as written in a file, or an empty text if the setting is not set.
    let text: @Sendable (Root) -> String
    private let read: @Sendable (SettingsValue, inout Root) throws(SettingsError) -> Void
    /// Lowers the default to the limits set by other settings; nil if no other setting limits this one.
    private var lower: (@Sendable (inout Root) -> Void)?

    init<Value>(
        _ name: String,
        _ path: Path<Value>,
        _ kind: SettingsKind<Value>,
        needsRestart: Bool = false
    ) {
        self.name = name
        self.needsRestart = needsRestart
        text = { kind.text($0[keyPath: path]) }
        read = { value, root throws(SettingsError) in root[keyPath: path] = try kind.read(value) }
    }

    init<Value>(
        _ name: String,
        _ path: Path<Value?>,
        _ kind: SettingsKind<Value>,
        needsRestart: Bool = false
    ) {
        self.init(name, path, kind.optional, needsRestart: needsRestart)
    }

    /// Creates a setting limited by another setting, such as `limits.max-size`.
    ///
    /// A greater value is refused, and a greater default is lowered to the limit.
    init<Value: Comparable & Sendable>(
        _ name: String,
        _ path: Path<Value>,
        _ kind: SettingsKind<Value>,
        upTo bound: (name: String, path: Path<Value>)
    ) {
        self.name = name
        needsRestart = false
        text = { kind.text($0[keyPath: path]) }
        read = { value, root throws(SettingsError) in
            let read = try kind.read(value)
            let maximum = root[keyPath: bound.path]
            guard read <= maximum else {
                let written = try value.scalar(else: kind.expected)
                throw value.fault(
                    "'\(written)' exceeds \(bound.name), which is \(kind.text(maximum))"
                )
            }
            root[keyPath: path] = read
        }
        lower = { root in root[keyPath: path] = min(root[keyPath: path], root[keyPath: bound.path])
        }
    }

    /// Creates a setting of `Root` from `key`, a setting of one of its parts.
    init<Part>(
        _ section: String,
        _ path: Path<Part>,
        _ key: SettingsKey<Part>
    ) {
        name = "\(section).\(key.name)"
        needsRestart = key.needsRestart
        text = { key.text($0[keyPath: path]) }
        read = { value, root throws(SettingsError) in
            try key.read(value, &root[keyPath: path])
        }
        if let lower = key.lower { self.lower = { lower(&$0[keyPath: path]) } }
    }

    /// Stores the values of a file in `root`.
    ///
    /// Limited settings come last, because they need the values of their limits.
    static func take(
        _ values: [String: SettingsValue],
        by keys: [SettingsKey],
        into root: inout Root
    ) throws(SettingsError) {
        for key in keys.filter({ $0.lower == nil }) + keys.filter({ $0.lower != nil }) {
            key.lower?(&root)
            if let value = values[key.name] { try key.read(value, &root) }
        }
    }
}
