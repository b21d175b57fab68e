// The figures of a spool, counted by `SpoolRoom`, and the state of its disk.

package import SpoolgatePosix

/// The number of uploads and bytes in a spool, and the limits on bytes.
package struct SpoolFigures: Sendable, Equatable {
    /// The number of uploads with a record, excluding those in `corrupt`.
    package var uploads: Int
    /// The number of uploads that have not been delivered.
    package var unfinished: Int
    /// The number of bytes of content and records.
    package var bytes: Int64
    /// The number of bytes that must stay free on the file system.
    package var reserve: Int64
    /// The maximum number of bytes of content and records, or nil if unlimited.
    package var quota: Int64?
}

extension Spool {
    private static let purgeFile = "purged"

    /// Records for monitoring that expired uploads have just been removed.
    ///
    /// Ignores write errors.
    package func notePurge() {
        try? layout.replace(Self.purgeFile, with: "\(clock.now.seconds)\n", on: disk)
    }

    /// The time of the last `notePurge()` by any process, or nil if no call was recorded or the time cannot be read.
    package var lastPurge: WallTime? {
        guard let text = try? SpoolLayout.text(of: Self.purgeFile, in: layout.root) else {
            return nil
        }
        return Int64(text.prefix { $0 != "\n" }).map { WallTime(seconds: $0) }
    }

    /// The figures of the spool, determined without access to the disk.
    ///
    /// They are complete only after the first walk through the spool, and miss other processes' changes until the next
    /// count.
    package var figures: SpoolFigures { room.figures }

    /// Returns the reasons why every upload that needs a file is currently refused with 507, without access to
    /// the disk.
    ///
    /// - Parameter space: the free space of the file system, or nil if unknown.
    /// - Returns: `.full`, `.fewFiles`, `.overQuota` or `.tooMany` for each reason; empty if uploads are accepted.
    package func refusals(with space: FileSystemSpace?) -> [SpoolError] {
        room.refusals(with: space)
    }

    /// The number of uploads from which on a count takes too long.
    private static let maximumRecounted = 10_000

    /// Counts all uploads and bytes if the figures may be wrong and a count is fast.
    ///
    /// - Parameter isDue: whether to count even if the figures are not known to be wrong, because another process may
    ///   have removed uploads.
    package func recount(isDue: Bool) {
        guard isDue || room.isTooHigh, figures.uploads < Self.maximumRecounted else { return }
        // If the count fails, the earlier figures stay.
        try? room.count { () throws(SystemError) in try layout.census(readingRecords: true) }
    }

    /// Returns the free space of the file system; throws `.disk` if it cannot be read.
    package func space() throws(SpoolError) -> FileSystemSpace {
        try reporting(layout.root.space())
    }
}
