// Whether the spool has enough space for the largest permitted upload. Pure.

import SpoolgateTextFormats

/// The space in the spool; all sizes are in bytes.
struct RoomEvidence: Evidence, Sendable, Equatable {
    var check: String { "spool" }
    var path: String
    var user: String
    var free: Int64
    /// The free space that the gateway must leave (`spool.reserve`).
    var reserve: Int64
    /// The maximum size of the spool (`spool.quota`); 0 if unlimited.
    var quota: Int64
    /// The largest upload that any route accepts.
    var largest: Int64

    var finding: Finding {
        let room = max(0, free - reserve)
        let shown = "\(path), \(ByteSize.rounded(room)) free above the reserve"
        guard room > 0 else {
            return failure(
                "\(path): \(ByteSize.rounded(free)) free, all within spool.reserve "
                    + "(\(ByteSize.rounded(reserve))): every upload is refused",
                "free some space, or lower spool.reserve in spoolgate.yaml"
            )
        }
        let maximum = quota == 0 ? room : min(room, quota)
        guard maximum >= largest else {
            return warning(
                "\(shown); one upload may need \(ByteSize.rounded(largest)) (limits.max-size)",
                "enlarge the disk or spool.quota, or lower limits.max-size in spoolgate.yaml"
            )
        }
        return ok(shown)
    }
}
