// What of the delivery queue waits for its time.

import Posix
import UploadProtocol

/// Uploads by the time they are due: a binary heap.
struct DueList {
    /// One upload.
    struct Entry {
        var due: WallTime
        var id: UploadID
        var route: String
    }

    private var entries: [Entry] = []

    /// Adds an upload.
    mutating func insert(_ entry: Entry) {
        entries.append(entry)
        var child = entries.count - 1
        while child > 0, entries[child].due < entries[(child - 1) / 2].due {
            entries.swapAt(child, (child - 1) / 2)
            child = (child - 1) / 2
        }
    }

    /// Takes the one that is due first, if that is at `now` or before.
    mutating func popFirst(until now: WallTime) -> Entry? {
        guard let first = entries.first, first.due <= now else { return nil }
        entries.swapAt(0, entries.count - 1)
        entries.removeLast()
        var parent = 0
        while true {
            var least = parent
            for child in [2 * parent + 1, 2 * parent + 2]
            where child < entries.count && entries[child].due < entries[least].due {
                least = child
            }
            guard least != parent else { return first }
            entries.swapAt(parent, least)
            parent = least
        }
    }
}
