// What there is in a spool in numbers, as this process knows it, and whether the disk takes anything.
//
// Nothing is counted here: SpoolRoom counts what this process makes, writes and removes, and the walk through the
// spool what was there before.

package import SpoolgatePosix

/// A spool in numbers.
package struct SpoolFigures: Sendable, Equatable {
    /// Uploads with a record, without those in `corrupt`.
    package var uploads: Int
    /// Of these, those that are not delivered.
    package var unfinished: Int
    /// Bytes of content and records.
    package var bytes: Int64
    /// Bytes that stay free on the file system.
    package var reserve: Int64
    /// Most bytes of content and records; nil: no limit.
    package var quota: Int64?
}

extension Spool {
    private static let purgeFile = "purged"

    /// Notes down that what is over was looked for and removed, for whoever watches that it is.
    ///
    /// Where that fails, the note before stays.
    package func notePurge() {
        try? layout.replace(Self.purgeFile, with: "\(clock.now.seconds)\n", on: disk)
    }

    /// When `notePurge` was called last, by any process; nil: never, or it cannot be read.
    package var lastPurge: WallTime? {
        guard let text = try? SpoolLayout.text(of: Self.purgeFile, in: layout.root) else {
            return nil
        }
        return Int64(text.prefix { $0 != "\n" }).map { WallTime(seconds: $0) }
    }

    /// The spool in numbers, without looking at the disk.
    ///
    /// All of it only after the first walk; what another process has made or removed shows after the next count.
    package var figures: SpoolFigures { room.figures }

    /// Why every upload that needs a file would be refused now, with 507; without looking at the disk.
    ///
    /// - Parameter space: what was free on its file system; nil: not known.
    /// - Returns: `.full`, `.fewFiles`, `.overQuota`, `.tooMany`; empty: uploads are taken.
    package func refusals(with space: FileSystemSpace?) -> [SpoolError] {
        room.refusals(with: space)
    }

    /// Most uploads that are counted only for the figures' sake.
    private static let mostRecounted = 10_000

    /// Counts again where that is soon done, so that the figures are right.
    ///
    /// - Parameter isDue: whether that is to be done although nothing is known to be wrong: another process may
    ///   have removed something.
    package func recount(isDue: Bool) {
        guard isDue || room.isTooHigh, figures.uploads < Self.mostRecounted else { return }
        // Where it fails, the figures before stand.
        try? room.count { () throws(SystemError) in try layout.census(readingRecords: true) }
    }

    /// What is free on its file system.
    /// - Throws: `.disk` where it cannot be asked.
    package func space() throws(SpoolError) -> FileSystemSpace {
        try onDisk { () throws(SystemError) in try layout.root.space() }
    }

    /// Whether files can be made in the spool; it leaves none.
    ///
    /// A disk that is full is no fault here: what is asked for then is refused, and all else goes on.
    ///
    /// - Throws: `.disk` where none can be made.
    package func checkWritable() throws(SpoolError) {
        do throws(SystemError) { _ = try disk.createNameless(in: layout.temporary) } catch {
            guard error.isFull || error.isExhausted else { throw .disk(error) }
        }
    }
}
