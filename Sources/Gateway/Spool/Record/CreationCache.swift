// A cache of creations, so that repeated requests for an offset do not parse the whole record each time.
//
// A creation never changes, and no identity is used twice, so entries stay valid. Invariant: an entry is used only for
// a record with exactly the same bytes.

import Glibc
import SpoolgatePosix
import SpoolgateUploadProtocol

/// A bounded cache of parsed creations.
///
/// Thread-safe.
final class CreationCache: Sendable {
    private final class Entry: Sendable {
        let text: [UInt8]
        let creation: UploadCreation

        init(text: [UInt8], creation: UploadCreation) {
            self.text = text
            self.creation = creation
        }
    }

    /// The maximum number of entries; each takes one or two kilobytes.
    private static let limit = 512
    /// The maximum length of a cached text in bytes.
    static let longest = 4096

    private let entries = Monitor(RecentTable<UploadID, Entry>(most: limit))

    /// Returns the creation of `id` and the size of its text in bytes, or nil if `bytes` do not begin with the text
    /// cached for `id`.
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

    func remember(_ creation: UploadCreation, text: ArraySlice<UInt8>) {
        guard text.count <= Self.longest else { return }
        let entry = Entry(text: Array(text), creation: creation)
        entries.update { $0[creation.id] = entry }
    }

    func forget(_ id: UploadID) { entries.update { $0[id] = nil } }
}
