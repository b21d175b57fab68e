// Creations that were read lately, so that a client that asks for its offset again and again does not
// have its upload's whole record read and judged each time.
//
// A creation never changes, and no identity is used twice: what was once read right stays right.
// Invariant: an entry is only used for a record whose bytes are the very same.

import Glibc
import SpoolgatePosix
import SpoolgateUploadProtocol

/// A bounded memory of creations.
///
/// Any thread.
final class CreationCache: Sendable {
    /// A creation and the text it was read from.
    private final class Entry: Sendable {
        let text: [UInt8]
        let creation: UploadCreation

        init(text: [UInt8], creation: UploadCreation) {
            self.text = text
            self.creation = creation
        }
    }

    /// A record's head is a kilobyte or two; so this is about a megabyte.
    private static let limit = 512
    /// Longer texts are not remembered: a client chooses how long they are, and 512 of the longest
    /// would take tens of megabytes.
    static let longest = 4096

    private let entries = Monitor<[UploadID: Entry]>([:])

    /// The creation of `id`, if `bytes` begin with the text it was read from; and that text's length.
    func creation(_ id: UploadID, in bytes: ArraySlice<UInt8>) -> (UploadCreation, Int)? {
        guard let entry = entries.update({ $0[id] }), bytes.count >= entry.text.count else {
            return nil
        }
        let isSame = bytes.withUnsafeBytes { there in
            entry.text.withUnsafeBytes { known in
                guard let here = there.baseAddress, let text = known.baseAddress else {
                    return known.isEmpty
                }
                return memcmp(here, text, known.count) == 0
            }
        }
        return isSame ? (entry.creation, entry.text.count) : nil
    }

    /// Remembers a creation that was read from `text`.
    func remember(_ creation: UploadCreation, text: ArraySlice<UInt8>) {
        guard text.count <= Self.longest else { return }
        let entry = Entry(text: Array(text), creation: creation)
        entries.update { entries in
            if entries.count >= Self.limit, let some = entries.keys.first { entries[some] = nil }
            entries[creation.id] = entry
        }
    }

    /// Forgets an upload that is gone.
    func forget(_ id: UploadID) { entries.update { $0[id] = nil } }
}
