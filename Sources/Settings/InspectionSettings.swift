// What runs before a delivery, and its limits: values, decoding, and the way they are written.

import TextFormats
import UploadProtocol

/// The inspection of one route.
package struct InspectionSettings: Sendable, Equatable {
    /// The program's absolute path and its arguments, to which the file's path is added; empty: none.
    package var command: [String] = []
    /// Longest time of one run, and of the wait for a free place.
    package var timeout = Duration.seconds(300)
    /// Most runs at a time.
    package var maximumConcurrent = 2
    /// The status of the final response to an upload that is refused.
    package var status = 422

    /// The product's defaults.
    package init() {}

    /// Takes the keys of the section `inspect`.
    package init(_ section: SettingsSection) throws(SettingsError) {
        self.init()
        var section = section
        var isFirst = true
        let words = try section.values(
            "command",
            expecting: "an absolute path and arguments without NUL"
        ) { text -> String? in
            defer { isFirst = false }
            return !text.contains("\0") && (!isFirst || text.isAbsolutePath) ? text : nil
        }
        command = words ?? command
        timeout = try section.duration("timeout", seconds: 1...3_600) ?? timeout
        maximumConcurrent =
            try section.integer("maximum-concurrent", in: 1...1024) ?? maximumConcurrent
        status = try section.integer("status", in: 400...499) ?? status
        try section.finish()
    }

    /// The settings as they are written.
    package var table: [(key: String, value: String)] {
        [
            ("inspect.command", Self.list(command)),
            ("inspect.timeout", DurationText.text(timeout)),
            ("inspect.maximum-concurrent", "\(maximumConcurrent)"),
            ("inspect.status", "\(status)"),
        ]
    }

    private static func list(_ words: [String]) -> String {
        words.count > 1 ? SettingsText.list(words) : words.first ?? ""
    }
}
