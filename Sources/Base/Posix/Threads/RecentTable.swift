// A dictionary that holds a limited number of entries.
//
// Pure; its owner must guard it. Invariant: the cost of an operation does not depend on the number of entries. If an
// arbitrary entry made room, it would be the dictionary's first one: its first buckets would become empty and the last
// ones full, and each search would pass thousands of entries.

/// A dictionary with at most `maximum` entries, in which a new key replaces the one that was added first.
///
/// Not thread-safe.
@usableFromInline package struct RecentTable<Key: Hashable, Value> {
    @usableFromInline
    struct Entry {
        @usableFromInline var value: Value
        /// The index of the entry's key in `keys`.
        @usableFromInline let place: Int

        @usableFromInline
        init(value: Value, place: Int) { (self.value, self.place) = (value, place) }
    }

    @usableFromInline let maximum: Int
    @usableFromInline var entries: [Key: Entry] = [:]
    /// The keys in the order of their addition, the oldest at `next` if there are `maximum`; some were removed since.
    @usableFromInline var keys: [Key] = []
    @usableFromInline var next = 0

    /// Creates an empty table; `maximum` must be positive.
    @inlinable
    package init(maximum: Int) { self.maximum = maximum }

    @inlinable package var count: Int { entries.count }

    /// The value of a key; a new value of a known key does not change the key's age.
    @inlinable
    package subscript(key: Key) -> Value? {
        get { entries[key]?.value }
        set {
            guard let newValue else {
                entries[key] = nil
                return
            }
            if let index = entries.index(forKey: key) {
                entries.values[index].value = newValue
                return
            }
            if keys.count < maximum {
                keys.append(key)
            } else {
                // The key may have been removed, and added again later.
                if entries[keys[next]]?.place == next { entries[keys[next]] = nil }
                keys[next] = key
            }
            entries[key] = Entry(value: newValue, place: next)
            next = (next + 1) % maximum
        }
    }
}
