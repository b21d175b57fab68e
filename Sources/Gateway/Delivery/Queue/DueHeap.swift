// What of the delivery queue waits for its time.

import SpoolgatePosix
import SpoolgateUploadProtocol

/// Uploads by the time they are due: a binary heap.
struct DueHeap {
    /// One upload.
    struct Entry {
        var due: WallTime
        var id: UploadID
        var route: String
        var client: ClientName
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

/// The uploads of each route that are due first, of any number of them.
struct DueUploads {
    /// Most of one route that are kept.
    static let most = 10_000

    private let most: Int
    private var entries: [String: [DueHeap.Entry]] = [:]
    private var cut: Set<String> = []

    /// Begins with none, for at most so many of each route.
    init(most: Int = most) { self.most = most }

    /// Adds one.
    mutating func add(_ entry: DueHeap.Entry) {
        entries[entry.route, default: []].append(entry)
        if entries[entry.route]?.count == 2 * most { keepEarliest(of: entry.route) }
    }

    private mutating func keepEarliest(of route: String) {
        entries[route]?.sort { $0.due < $1.due }
        let beyond = (entries[route]?.count ?? 0) - most
        guard beyond > 0 else { return }
        entries[route]?.removeLast(beyond)
        cut.insert(route)
    }

    /// Gives the earliest to a queue, and tells it of which routes there are more.
    mutating func addAll(to queue: DeliveryQueue) {
        for route in entries.keys { keepEarliest(of: route) }
        for entry in entries.values.joined() {
            queue.add(entry)
        }
        for route in cut { queue.noteCut(route) }
    }
}
