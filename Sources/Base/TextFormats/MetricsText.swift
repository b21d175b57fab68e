// Metrics in Prometheus's text exposition format (version 0.0.4).
//
// Pure. Invariant: the samples of a metric directly follow its type and description, and no label ends its line early.

/// A text with metrics.
package struct MetricsText {
    /// The type of a metric.
    package enum Kind: String, Sendable {
        /// A value that only grows until the process restarts.
        case counter
        case gauge
        /// Cumulative counts for ascending bounds, and the sum and number of all values.
        case histogram
    }

    /// The names and values of a sample's labels; a value may be any text.
    package typealias Labels = [(name: String, value: String)]

    package private(set) var text = ""
    private let prefix: String
    private var name = ""

    /// Starts empty; `prefix` is added to each name.
    package init(prefix: String) { self.prefix = prefix }

    /// Starts a metric, whose samples follow.
    ///
    /// - Parameters:
    ///   - name: the name without the prefix; that of a counter ends in `_total`.
    ///   - kind: the type.
    ///   - help: the description, one sentence on one line.
    package mutating func begin(_ name: String, _ kind: Kind, _ help: String) {
        self.name = prefix + name
        text += "# HELP \(self.name) \(help)\n# TYPE \(self.name) \(kind.rawValue)\n"
    }

    /// Adds a sample of a counter or a gauge.
    package mutating func add(_ value: some Numeric, _ labels: Labels = []) {
        write(name, labels, "\(value)")
    }

    /// Adds a sample of a histogram with ascending upper bounds.
    ///
    /// `cumulated` has the number of values up to each bound, then the number of all values, whose sum is `sum`.
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

    /// The usual form of a bound: `5`, not `5.0`.
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
