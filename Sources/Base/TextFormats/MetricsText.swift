// Metrics in Prometheus's text exposition format (version 0.0.4).
//
// Pure. Invariant: a metric's samples directly follow its type and description, and no label contains a line end.

/// A text with metrics.
package struct MetricsText {
    /// A sample's labels.
    ///
    /// A value may be any text.
    package typealias Labels = [(name: String, value: String)]

    package private(set) var text = ""
    private let prefix: String
    private var name = ""

    /// Starts an empty text.
    ///
    /// `prefix` is added before each metric's name.
    package init(prefix: String) { self.prefix = prefix }

    /// Starts a metric whose value only grows until the process restarts.
    ///
    /// Add its samples next. `name` has no prefix, and must end in `_total` for a counter. `help` is one sentence on one
    /// line.
    package mutating func counter(_ name: String, _ help: String) { begin(name, "counter", help) }

    /// Starts a metric like `counter(_:_:)` whose value may also fall.
    package mutating func gauge(_ name: String, _ help: String) { begin(name, "gauge", help) }

    /// Starts a metric like `counter(_:_:)` with cumulative counts for ascending bounds, and the sum and number of all
    /// values.
    package mutating func histogram(_ name: String, _ help: String) {
        begin(name, "histogram", help)
    }

    private mutating func begin(_ name: String, _ kind: String, _ help: String) {
        self.name = prefix + name
        text += "# HELP \(self.name) \(help)\n# TYPE \(self.name) \(kind)\n"
    }

    /// Adds a sample of a counter or a gauge.
    package mutating func add(_ value: some Numeric, _ labels: Labels = []) {
        write(name, labels, "\(value)")
    }

    /// Adds a sample of a histogram with ascending upper bounds.
    ///
    /// `cumulated` must contain the number of values up to each bound, then the number of all values. `sum` is their
    /// sum.
    package mutating func add(
        bounds: [Double],
        _ cumulated: [Int],
        sum: Double,
        _ labels: Labels = []
    ) {
        for (bound, count) in zip(bounds, cumulated) {
            write("\(name)_bucket", labels + [("le", Self.text(bound))], "\(count)")
        }
        let count = cumulated.last ?? 0
        write("\(name)_bucket", labels + [("le", "+Inf")], "\(count)")
        write("\(name)_sum", labels, "\(sum)")
        write("\(name)_count", labels, "\(count)")
    }

    private mutating func write(_ name: String, _ labels: Labels, _ value: String) {
        text += name
        if !labels.isEmpty {
            let shown = labels.map { "\($0.name)=\"\(Self.escaped($0.value))\"" }
            text += "{\(shown.joined(separator: ","))}"
        }
        text += " \(value)\n"
    }

    /// Returns the usual form of a bound, such as `5` instead of `5.0`.
    private static func text(_ bound: Double) -> String {
        bound == bound.rounded() ? "\(Int(bound))" : "\(bound)"
    }

    private static func escaped(_ text: String) -> String {
        var escaped = ""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "\\": escaped += "\\\\"
            case "\"": escaped += "\\\""
            case "\n": escaped += "\\n"
            default: escaped.unicodeScalars.append(scalar)
            }
        }
        return escaped
    }
}
