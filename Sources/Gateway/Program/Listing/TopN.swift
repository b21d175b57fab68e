// The first elements of a large number in some order, up to a limit, for listings of spools with millions of uploads.
//
// Invariant: it never holds more than twice the limit.

import SpoolgatePosix
import SpoolgateSpool
import SpoolgateUploadProtocol

/// The first elements in ascending order of a key; the others are discarded.
struct TopN<Key: Comparable, Element> {
    private let limit: Int
    private var all: [(key: Key, element: Element)] = []
    /// Elements whose key is greater than or equal to this one are not among the first; nil if no such key is known.
    private var bound: Key?

    /// Creates an empty collection that keeps the first `limit` elements, at least 1.
    init(limit: Int) { self.limit = limit }

    /// Adds an element if it may be among the first; otherwise does not evaluate `element`.
    mutating func add(_ key: Key, _ element: @autoclosure () -> Element) {
        if let bound, key >= bound { return }
        all.append((key, element()))
        if all.count >= 2 * limit { cut() }
    }

    /// The first elements with their keys, sorted.
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

/// The position of an upload in a sorted listing.
struct UploadOrder: Comparable {
    /// The sort order of uploads.
    enum Kind: String, CaseIterable {
        /// By bytes on the disk, largest first.
        case size
        /// By last activity, oldest first.
        case age
    }

    private let rank: Int64
    private let id: String

    /// Creates the position of an upload; equal uploads are ordered by identity.
    init(_ summary: UploadSummary, by kind: Kind) {
        rank = kind == .size ? -summary.diskUsage : summary.lastActivity.seconds
        id = summary.id.description
    }

    static func < (one: UploadOrder, other: UploadOrder) -> Bool {
        (one.rank, one.id) < (other.rank, other.id)
    }
}
