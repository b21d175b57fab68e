// The description of a handed-over file for the upstream, with a signature over every member.
//
// Pure: the caller computes the signature. Invariant: the signed text depends only on the members, not on their order
// or encoding.

package import SpoolgateSettings
package import SpoolgateTextFormats

/// The description of a handed-over file, as a list of named members.
package struct HandoverNotice: Sendable {
    private var members: [(name: String, value: JSON)] = []

    /// Creates a notice without members.
    package init() {}

    /// Adds a member.
    ///
    /// The name must be unique, and the value a string or an integer.
    package mutating func add(_ name: String, _ value: JSON) { members.append((name, value)) }

    private var texts: [(name: String, value: String)] {
        members.map { name, value in
            if case .string(let text) = value { (name, text) } else { (name, value.text) }
        }
    }

    /// The text to sign: the name and value of each member, in the byte order of the names.
    ///
    /// Each name and each value is a netstring (its length in bytes, a colon, the bytes, a comma).
    package var signedText: [UInt8] {
        texts.sorted { $0.name.utf8.lexicographicallyPrecedes($1.name.utf8) }.flatMap { member in
            [member.name, member.value].flatMap { Array("\($0.utf8.count):\($0),".utf8) }
        }
    }

    /// Encodes the members for the request to the upstream.
    package func content(_ encoding: PathSettings.Encoding) -> [UInt8] {
        switch encoding {
        case .form:
            let pairs = texts.map {
                "\(PercentText.encode($0.name))=\(PercentText.encode($0.value))"
            }
            return Array(pairs.joined(separator: "&").utf8)
        case .json: return Array(JSON.object(members).text.utf8)
        }
    }
}
