// How the texts of options and arguments are read, and what is told of one that cannot be read.

import ArgumentParser
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// The transform of an option or an argument.
///
/// - Parameters:
///   - fault: what is told of a text that cannot be read, behind that text.
///   - read: the value of a text; nil: it cannot be read.
/// - Returns: what ArgumentParser calls with each text.
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
