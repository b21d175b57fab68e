// Which states of uploads this process has made durable last.
//
// A state that another process wrote may not be: it can have died before. Invariant: what is noted here is
// durable; what is not may be, and a sync tells.

import SpoolgatePosix
import SpoolgateUploadProtocol

/// A bounded memory of states that are durable.
///
/// Any thread.
final class SyncedStates: Sendable {
    /// Some megabytes; the next use of what is forgotten is one sync more.
    private static let limit = 1 << 16

    private let sequences = Monitor<[UploadID: UInt64]>([:])

    /// Whether the state of `id` with that sequence is known to be durable.
    func contains(_ id: UploadID, _ sequence: UInt64) -> Bool {
        sequences.update { $0[id] == sequence }
    }

    /// Notes that a state is durable.
    func note(_ id: UploadID, _ sequence: UInt64) {
        sequences.update { sequences in
            if sequences.count >= Self.limit, let some = sequences.keys.first {
                sequences[some] = nil
            }
            sequences[id] = sequence
        }
    }

    /// Forgets an upload that is gone.
    func forget(_ id: UploadID) { sequences.update { $0[id] = nil } }
}
