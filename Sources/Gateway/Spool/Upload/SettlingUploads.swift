// The time in which a short file of a shared spool may still grow.
//
// If a host crashes, CephFS releases its locks before it knows the sizes of the host's files, so a file that the host
// had synced is too short for a moment. Invariant: no upload is removed or moved to `corrupt` because of a file's size
// before the upload's time has passed.

import SpoolgatePosix
import SpoolgateUploadProtocol

/// The uploads of a shared spool with a file that is too short.
///
/// Thread-safe.
final class SettlingUploads: Sendable {
    let time: Duration
    private let ends = Monitor([UploadID: Deadline]())

    /// `time` is how long a file may still grow.
    init(for time: Duration) { self.time = time }

    /// Returns the end of the time in which the upload's files may grow.
    ///
    /// The time starts at the first call.
    func end(for id: UploadID) -> Deadline {
        ends.update { ends in
            let end = ends[id] ?? .after(time)
            ends[id] = end
            return end
        }
    }

    func remove(_ id: UploadID) { ends.update { $0[id] = nil } }
}
