// The first elements of many in some order, for spools with millions of uploads.
//
// Invariant: it never holds more than twice the limit.

import SpoolgatePosix
import SpoolgateSpool
import SpoolgateUploadProtocol

/// Keeps the first elements in ascending order of a key.
struct TopN<Key: Comparable, Element> {
    private let limit: Int
    private var all: [(key: Key, element: Element)] = []
    /// Elements with this or a greater key are not among the first; nil if no such key is known.
    private var bound: Key?

    /// Creates an empty collection that keeps the first `limit` elements; `limit` must be at least 1.
    init(limit: Int) { self.limit = limit }

    /// Evaluates `element` only if it may be among the first.
    mutating func add(_ key: Key, _ element: @autoclosure () -> Element) {
        if let bound, key >= bound { return }
        all.append((key, element()))
        if all.count >= 2 * limit { cut() }
    }

    mutating func sorted() -> [(key: Key, element: Element)] {
        cut()
        return all
    }

    private mutating func cut() {
        all.sort { $0.key < $1.key }
        guard all.count > limit else { return }
        bound = all[limit].key
        all.removeLast(all.count - limit)
    }
}

struct UploadOrder: Comparable {
    enum Kind: String, CaseIterable {
        /// By bytes on the disk, largest first.
        case size
        /// By last activity, oldest first.
        case age
    }

    private let rank: Int64
    private let id: String

    /// Equal uploads are ordered by identity.
    init(_ summary: UploadSummary, by kind: Kind) {
        rank = kind == .size ? -summary.diskUsage : summary.lastActivity.seconds
        id = summary.id.description
    }

    static func < (one: UploadOrder, other: UploadOrder) -> Bool {
        (one.rank, one.id) < (other.rank, other.id)
    }
}
