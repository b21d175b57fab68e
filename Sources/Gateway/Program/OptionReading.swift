// Readers for the texts of options and arguments, and the errors for invalid ones.

import ArgumentParser
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// Returns a function that converts the text of an option or an argument, for ArgumentParser's `transform`.
///
/// The function throws the text followed by `fault` if `read` returns nil because the text is invalid.
func reading<Value>(
    _ fault: String,
    _ read: @escaping @Sendable (String) -> Value?
) -> @Sendable (String) throws -> Value {
    { text in
        guard let value = read(text) else { throw ValidationError("'\(text)' \(fault)") }
        return value
    }
}

extension ArgumentHelp {
    /// Returns the help of an option or argument whose value is called `name`.
    static func value(_ name: String, _ text: String) -> ArgumentHelp {
        ArgumentHelp(text, valueName: name)
    }
}

let readDuration = reading("is not a duration; use 90s, 30m, 24h or 7d.") { DurationText.read($0) }

let readUpload = reading("is not the identity of an upload; see spoolgate list.") { UploadID($0) }
