// Readers for the texts of options and arguments, and the errors for invalid ones.

import ArgumentParser
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// Makes the transform of an option or an argument.
///
/// - Parameters:
///   - fault: the error for an invalid text, which follows the text.
///   - read: returns the value of a text; nil: it is invalid.
/// - Returns: the transform for ArgumentParser.
func reading<Value>(
    _ fault: String,
    _ read: @escaping @Sendable (String) -> Value?
) -> @Sendable (String) throws -> Value {
    { text in
        guard let value = read(text) else { throw ValidationError("'\(text)' \(fault)") }
        return value
    }
}

/// Reads a duration from the command line.
let readDuration = reading("is not a duration; use 90s, 30m, 24h or 7d.") { DurationText.read($0) }

/// Reads a size from the command line.
let readSize = reading("is not a size; use 500KiB, 20MiB or 50GiB.") { ByteSize.read($0) }

/// Reads an upload's identity from the command line.
let readUpload = reading("is not the identity of an upload; see spoolgate list.") { UploadID($0) }
