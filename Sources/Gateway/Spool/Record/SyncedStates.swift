// The states of uploads that this process last made durable.
//
// Another process may have crashed before it synced its states. Invariant: every state in this table is durable; any
// other state may need a sync.

import SpoolgatePosix
import SpoolgateUploadProtocol

/// A bounded cache of the sequence numbers of durable states; thread-safe.
final class SyncedStates: Sendable {
    /// The maximum number of entries, which take a few megabytes.
    ///
    /// A dropped entry only costs one more sync.
    private static let limit = 1 << 16

    private let sequences = Monitor(RecentTable<UploadID, UInt64>(most: limit))

    /// Returns whether the state `sequence` of `id` is known to be durable.
    func contains(_ id: UploadID, _ sequence: UInt64) -> Bool {
        sequences.update { $0[id] == sequence }
    }

    /// Records that the state `sequence` of `id` is durable.
    func note(_ id: UploadID, _ sequence: UInt64) {
        sequences.update { $0[id] = sequence }
    }

    func forget(_ id: UploadID) { sequences.update { $0[id] = nil } }
}
