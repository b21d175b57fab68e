// A binary heap of the uploads of the delivery queue that are not due yet.

import SpoolgatePosix
import SpoolgateUploadProtocol

struct DueHeap {
    struct Entry {
        var due: WallTime
        var id: UploadID
        var route: String
        var client: ClientName
    }

    private var entries: [Entry] = []

    mutating func insert(_ entry: Entry) {
        entries.append(entry)
        var child = entries.count - 1
        while child > 0, entries[child].due < entries[(child - 1) / 2].due {
            entries.swapAt(child, (child - 1) / 2)
            child = (child - 1) / 2
        }
    }

    /// Removes and returns the earliest upload if it is due at `now`.
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

/// The earliest uploads of each route, selected from any number of uploads.
struct DueUploads {
    /// The default maximum number of uploads of one route.
    static let maximum = 10_000

    private let maximum: Int
    private var entries: [String: [DueHeap.Entry]] = [:]
    private var cut: Set<String> = []

    init(maximum: Int = maximum) { self.maximum = maximum }

    mutating func add(_ entry: DueHeap.Entry) {
        entries[entry.route, default: []].append(entry)
        if entries[entry.route]?.count == 2 * maximum { keepEarliest(of: entry.route) }
    }

    private mutating func keepEarliest(of route: String) {
        entries[route]?.sort { $0.due < $1.due }
        let beyond = (entries[route]?.count ?? 0) - maximum
        guard beyond > 0 else { return }
        entries[route]?.removeLast(beyond)
        cut.insert(route)
    }

    /// Adds the earliest uploads of each route to `queue`, and records in `queue` which routes have more.
    mutating func addAll(to queue: DeliveryQueue) {
        for route in entries.keys { keepEarliest(of: route) }
        for entry in entries.values.joined() {
            queue.add(entry)
        }
        for route in cut { queue.noteCut(route) }
    }
}
