// One row of a table of settings: all that a file, `check` and a reload know of one key.

/// Another setting that says how great a value may be.
struct SettingsBound<Root, Value>: Sendable {
    /// The other setting's key, such as `limits.max-size`.
    let name: String
    /// The other setting's value; nil: it is not set.
    let value: @Sendable (Root) -> Value?

    /// Makes it.
    init(_ name: String, _ value: @escaping @Sendable (Root) -> Value?) {
        (self.name, self.value) = (name, value)
    }
}

/// One setting of `Root`.
struct SettingsKey<Root>: Sendable {
    /// Where the value of a setting is.
    typealias Path<Value> = any WritableKeyPath<Root, Value> & Sendable

    /// The dotted key, such as `spool.reserve`.
    let name: String
    /// Whether only a restart puts a change in force.
    let needsRestart: Bool
    /// The setting as it would be written in a file; empty where nothing is set.
    let text: @Sendable (Root) -> String
    private let read: @Sendable (SettingsValue, inout Root) throws(SettingsError) -> Void
    /// Lowers the default to what another setting allows at most; nil where none does.
    private var lower: (@Sendable (inout Root) -> Void)?

    /// A setting that always has a value.
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

    /// A setting that may have none.
    init<Value>(
        _ name: String,
        _ path: Path<Value?>,
        _ kind: SettingsKind<Value>,
        needsRestart: Bool = false
    ) {
        self.init(name, path, kind.optional, needsRestart: needsRestart)
    }

    /// A setting that is at most what others say.
    ///
    /// A file with a greater value is refused. A default that is greater is lowered.
    init<Value: Comparable & Sendable>(
        _ name: String,
        _ path: Path<Value>,
        _ kind: SettingsKind<Value>,
        atMost bounds: SettingsBound<Root, Value>...
    ) {
        self.name = name
        needsRestart = false
        text = { kind.text($0[keyPath: path]) }
        read = { value, root throws(SettingsError) in
            let read = try kind.read(value)
            for bound in bounds {
                guard let most = bound.value(root), read > most else { continue }
                let written = try value.scalar(else: kind.expected)
                throw value.fault("'\(written)' exceeds \(bound.name), which is \(kind.text(most))")
            }
            root[keyPath: path] = read
        }
        lower = { root in
            let most = bounds.compactMap { $0.value(root) }
            root[keyPath: path] = (most + [root[keyPath: path]]).min() ?? root[keyPath: path]
        }
    }

    /// The same setting of a part of `Root`, in the section `section`.
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

    /// Takes the values of a file into `root`; those that others bound come last.
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
