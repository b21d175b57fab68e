// The log as lines of key=value (logfmt) on standard error.
//
// Invariant: one event is one line, whatever its values hold, and every line can be split into its keys
// and values again.

package import Logging
package import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// Writes log events to standard error, one line each.
package struct LineHandler: LogHandler {
    /// The least level that is written.
    package var logLevel: Logger.Level
    /// What stands in every line.
    package var metadata: Logger.Metadata = [:]
    private let output: StandardError

    /// Writes to `output` what has at least the level `level`.
    package init(level: Logger.Level, output: StandardError = StandardError()) {
        logLevel = level
        self.output = output
    }

    /// The value of a key that stands in every line.
    package subscript(metadataKey key: String) -> Logger.MetadataValue? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    /// Writes an event; one that cannot be written is lost, since nobody is left to tell.
    package func log(event: LogEvent) {
        let pairs = Self.pairs(
            message: "\(event.message)",
            metadata.merging(event.metadata ?? [:]) { $1 }
        )
        // The journal has a time and a level of its own for each line.
        let line =
            output.isJournal
            ? pairs : "time=\(WallTime.preciseNow) level=\(event.level.rawValue) \(pairs)"
        try? output.write(line: line, event.level.priority)
    }

    /// `msg="delivery deferred" upload=… next-attempt=- reason="…"`: the message, the upload, the other
    /// keys by name, and the reason, which is long.
    package static func pairs(message: String, _ metadata: Logger.Metadata) -> String {
        func rank(_ key: String) -> Int { key == "upload" ? 0 : key == "reason" ? 2 : 1 }
        let ordered = metadata.sorted { (rank($0.key), $0.key) < (rank($1.key), $1.key) }
        let all = [("msg", message)] + ordered.map { ($0.key, "\($0.value)") }
        return all.map { "\($0.0)=\(quoted($0.1))" }.joined(separator: " ")
    }

    /// A value as it is where that is clear, else in quotes as a string of JSON.
    private static func quoted(_ value: String) -> String {
        let isClear = value.unicodeScalars.allSatisfy { scalar in
            !scalar.isUnprintable && !scalar.properties.isWhitespace && scalar != "="
                && scalar != "\""
        }
        return isClear && !value.isEmpty ? value : JSON.string(value).text
    }
}

extension Logger.Level {
    fileprivate var priority: StandardError.Priority {
        switch self {
        case .trace, .debug: .debug
        case .info: .informational
        case .notice: .notice
        case .warning: .warning
        case .error: .error
        case .critical: .critical
        }
    }
}
