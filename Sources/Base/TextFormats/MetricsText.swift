// Metrics as text, in the format that Prometheus reads (version 0.0.4 of its text exposition format).
//
// Pure. Invariant: the samples of one metric stand together, behind its type and what it is for, and no label
// ends its line early.

/// A text that metrics are written into.
package struct MetricsText {
    /// What a metric is.
    package enum Kind: String, Sendable {
        /// It only grows, until the process begins anew.
        case counter
        /// It goes up and down.
        case gauge
        /// Counts within bounds that grow, their sum and their number.
        case histogram
    }

    /// The names and values of a sample's labels; a value may be any text.
    package typealias Labels = [(name: String, value: String)]

    /// The text so far, whole lines.
    package private(set) var text = ""
    private let prefix: String
    private var name = ""

    /// Begins without a metric; each name gets `prefix` before it.
    package init(prefix: String) { self.prefix = prefix }

    /// Begins a metric, whose samples follow.
    ///
    /// - Parameters:
    ///   - name: its name without the prefix; a counter's ends in `_total`.
    ///   - kind: what it is.
    ///   - help: one sentence, in one line.
    package mutating func begin(_ name: String, _ kind: Kind, _ help: String) {
        self.name = prefix + name
        text += "# HELP \(self.name) \(help)\n# TYPE \(self.name) \(kind.rawValue)\n"
    }

    /// Adds a sample of a counter or a gauge.
    package mutating func add(_ value: some Numeric, _ labels: Labels = []) {
        write(name, labels, "\(value)")
    }

    /// Adds a sample of a histogram.
    ///
    /// - Parameters:
    ///   - bounds: the upper bounds, which grow.
    ///   - cumulated: how many are within each bound, and then how many there are.
    ///   - sum: the sum of all.
    ///   - labels: what tells it from others of the metric.
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

    /// A bound in the form that others give it too: `5`, not `5.0`.
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
