// The figures of a spool, as this process knows them, and the state of its disk.
//
// `SpoolRoom` counts the uploads that this process creates, writes and removes; a walk through the spool counts those
// that were there before.

package import SpoolgatePosix

/// The figures of a spool.
package struct SpoolFigures: Sendable, Equatable {
    /// Uploads with a record, without those in `corrupt`.
    package var uploads: Int
    /// The uploads among them that are not delivered.
    package var unfinished: Int
    /// Bytes of content and records.
    package var bytes: Int64
    /// Bytes to keep free on the file system.
    package var reserve: Int64
    /// The maximum number of bytes of content and records; nil if unlimited.
    package var quota: Int64?
}

extension Spool {
    private static let purgeFile = "purged"

    /// Records the time of the last removal of expired uploads, for monitoring.
    ///
    /// If this fails, the earlier time stays.
    package func notePurge() {
        try? layout.replace(Self.purgeFile, with: "\(clock.now.seconds)\n", on: disk)
    }

    /// The time of the last `notePurge()` by any process; nil if there was none or it cannot be read.
    package var lastPurge: WallTime? {
        guard let text = try? SpoolLayout.text(of: Self.purgeFile, in: layout.root) else {
            return nil
        }
        return Int64(text.prefix { $0 != "\n" }).map { WallTime(seconds: $0) }
    }

    /// The figures of the spool, without access to the disk.
    ///
    /// They are complete only after the first walk; changes by other processes are included after the next count.
    package var figures: SpoolFigures { room.figures }

    /// Returns why every upload that needs a file is refused with 507 now, without access to the disk.
    ///
    /// - Parameter space: the free space of the file system; nil if unknown.
    /// - Returns: `.full`, `.fewFiles`, `.overQuota`, `.tooMany`; empty if uploads are accepted.
    package func refusals(with space: FileSystemSpace?) -> [SpoolError] {
        room.refusals(with: space)
    }

    /// The maximum number of uploads that are counted only for accurate figures.
    private static let mostRecounted = 10_000

    /// Counts again if the figures may be wrong and a count is short.
    ///
    /// - Parameter isDue: whether to count even if no error is known: another process may have removed uploads.
    package func recount(isDue: Bool) {
        guard isDue || room.isTooHigh, figures.uploads < Self.mostRecounted else { return }
        // If this fails, the earlier figures stay.
        try? room.count { () throws(SystemError) in try layout.census(readingRecords: true) }
    }

    /// Returns the free space of the file system.
    ///
    /// - Throws: `.disk` if it cannot be read.
    package func space() throws(SpoolError) -> FileSystemSpace {
        try onDisk { () throws(SystemError) in try layout.root.space() }
    }

    /// Checks that files can be created in the spool; leaves none.
    ///
    /// A full disk is no error here: uploads that need it are refused, and all others continue.
    ///
    /// - Throws: `.disk` if no file can be created.
    package func checkWritable() throws(SpoolError) {
        do throws(SystemError) { _ = try disk.createNameless(in: layout.temporary) } catch {
            guard error.isFull || error.isExhausted else { throw .disk(error) }
        }
    }
}
