// A fast lookup for fields that usually have one line.

package import HTTPTypes

extension HTTPFields {
    /// Returns the value of a field, with all its lines joined, or nil if the field is missing.
    ///
    /// Equivalent to the subscript of `HTTPFields`, but ten times as fast for a field with a single line.
    package func value(of name: HTTPField.Name) -> String? {
        var found: Int?
        for index in indices where self[index].name == name {
            guard found == nil else { return self[name] }
            found = index
        }
        return found.map { self[$0].value }
    }
}
