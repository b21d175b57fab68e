// The room that the spool has, against what one upload may have.
//
// Pure: what was seen, and what that means.

import SpoolgateTextFormats

/// How much room the spool has.
struct RoomSeen: Seen, Sendable, Equatable {
    var check: String { "spool" }
    /// The spool.
    var path: String
    /// Whose it is.
    var user: String
    /// Bytes that are free on its file system.
    var free: Int64
    /// Bytes that must stay free.
    var reserve: Int64
    /// Most bytes of the spool; 0: no limit.
    var quota: Int64
    /// The greatest upload that any route takes.
    var largest: Int64

    /// What it means.
    var finding: Finding {
        let room = max(0, free - reserve)
        let shown = "\(path), \(ByteSize.rounded(room)) free above the reserve"
        guard room > 0 else {
            return failure(
                "\(path): \(ByteSize.rounded(free)) free, all within spool.reserve "
                    + "(\(ByteSize.rounded(reserve))): every upload is refused",
                ["free some space, or lower spool.reserve in spoolgate.yaml"]
            )
        }
        let most = quota == 0 ? room : min(room, quota)
        guard most >= largest else {
            return warning(
                "\(shown); one upload may need \(ByteSize.rounded(largest)) (limits.max-size)",
                ["enlarge the disk or spool.quota, or lower limits.max-size in spoolgate.yaml"]
            )
        }
        return ok(shown)
    }
}
