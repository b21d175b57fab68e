// The log as lines of key=value (logfmt) on standard error.
//
// Invariant: an event is one line, regardless of its values, and every line can be parsed into keys and values.

package import Logging
package import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// A log handler that writes each event as one line to standard error.
package struct LineHandler: LogHandler {
    package var logLevel: Logger.Level
    package var metadata: Logger.Metadata = [:]
    private let output: StandardError

    /// Creates a handler that writes events of at least `level` to `output`.
    package init(level: Logger.Level, output: StandardError = StandardError()) {
        logLevel = level
        self.output = output
    }

    /// The value of a key added to every line.
    package subscript(metadataKey key: String) -> Logger.MetadataValue? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    /// Writes an event as a line.
    ///
    /// If writing fails, the event is lost, because there is no other output.
    package func log(event: LogEvent) {
        let pairs = Self.pairs(
            message: "\(event.message)",
            metadata.merging(event.metadata ?? [:]) { $1 }
        )
        // The systemd journal adds its own time and level.
        let line =
            output.isJournal
            ? pairs : "time=\(WallTime.preciseNow) level=\(event.level.rawValue) \(pairs)"
        try? output.write(line: line, event.level.priority)
    }

    /// Returns a line's pairs, such as `msg="delivery deferred" upload=… next-attempt=- reason="…"`.
    ///
    /// The message comes first, then the upload, the other keys by name, and last the reason, which is long.
    package static func pairs(message: String, _ metadata: Logger.Metadata) -> String {
        func rank(_ key: String) -> Int { key == "upload" ? 0 : key == "reason" ? 2 : 1 }
        let ordered = metadata.sorted { (rank($0.key), $0.key) < (rank($1.key), $1.key) }
        let all = [("msg", message)] + ordered.map { ($0.key, "\($0.value)") }
        return all.map { "\($0.0)=\(quoted($0.1))" }.joined(separator: " ")
    }

    /// Returns a value as a JSON string, unless it can be parsed without quotes.
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
