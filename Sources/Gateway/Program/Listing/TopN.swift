// The first of very many by some order, as many as a bound allows: what is sorted of a spool that may have
// millions of uploads.
//
// Invariant: it never keeps more than twice the bound.

import SpoolgatePosix
import SpoolgateSpool
import SpoolgateUploadProtocol

/// Elements in ascending order of a key, those beyond a bound forgotten.
struct TopN<Key: Comparable, Element> {
    private let limit: Int
    private var all: [(key: Key, element: Element)] = []
    /// What is not before this is not among the first.
    private var bound: Key?

    /// Keeps nothing yet; `limit` is at least 1.
    init(limit: Int) { self.limit = limit }

    /// Adds an element, if it may be among the first.
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

/// The place of an upload among others.
struct UploadOrder: Comparable {
    /// What uploads are sorted by.
    enum Kind: String, CaseIterable {
        /// Bytes on the disk, the largest first.
        case size
        /// The last activity, the oldest first.
        case age
    }

    private let rank: Int64
    private let id: String

    /// The place of an upload by one of the two; where that is the same, by its identity.
    init(_ summary: UploadSummary, by kind: Kind) {
        rank = kind == .size ? -summary.diskUsage : summary.lastActivity.seconds
        id = summary.id.description
    }

    static func < (one: UploadOrder, other: UploadOrder) -> Bool {
        (one.rank, one.id) < (other.rank, other.id)
    }
}
