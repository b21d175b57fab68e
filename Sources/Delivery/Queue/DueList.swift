// Two lists of the delivery queue: what waits for its time, and what waits for its turn.

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

/// Uploads in the order in which their time came.
struct ReadyList {
    private var ids: [UploadID] = []
    private var start = 0

    /// How many there are.
    var count: Int { ids.count - start }
    /// Whether there is none.
    var isEmpty: Bool { count == 0 }

    /// Adds one at the end.
    mutating func append(_ id: UploadID) { ids.append(id) }

    /// Takes the first.
    mutating func popFirst() -> UploadID? {
        guard start < ids.count else { return nil }
        defer { start += 1 }
        if start > 1024, start > ids.count / 2 {
            ids.removeFirst(start)
            start = 0
        }
        return ids[start]
    }
}
