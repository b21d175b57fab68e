// Readers for the texts of options and arguments, and the errors for invalid ones.

import ArgumentParser
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// Returns a converter for ArgumentParser's `transform`.
///
/// `read` returns nil for an invalid text; the error message is this text followed by `fault`.
func reading<Value>(
    _ fault: String,
    _ read: @escaping @Sendable (String) -> Value?
) -> @Sendable (String) throws -> Value {
    { text in
        guard let value = read(text) else { throw ValidationError("'\(text)' \(fault)") }
        return value
    }
}

let readDuration = reading("is not a duration; use 90s, 30m, 24h or 7d.") { DurationText.read($0) }

/// In bytes.
let readSize = reading("is not a size; use 500KiB, 20MiB or 50GiB.") { ByteSize.read($0) }

let readUpload = reading("is not the identity of an upload; see spoolgate list.") { UploadID($0) }
