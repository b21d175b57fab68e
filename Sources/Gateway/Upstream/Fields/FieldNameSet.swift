// A set of field names, searched for every message, without hashing.
//
// Pure. Invariant: names are compared whole, in lower case.

struct FieldNameSet: Sendable {
    private let byLength: [[String]]

    /// The names must be in lower case.
    init(_ names: [String]) {
        var byLength: [[String]] = []
        for name in names {
            let length = name.utf8.count
            while byLength.count <= length { byLength.append([]) }
            byLength[length].append(name)
        }
        self.byLength = byLength
    }

    func union(_ other: FieldNameSet) -> FieldNameSet {
        FieldNameSet((byLength + other.byLength).flatMap { $0 })
    }

    func contains(_ name: String) -> Bool {
        let length = name.utf8.count
        return length < byLength.count && byLength[length].contains(name)
    }
}
