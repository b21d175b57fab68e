// The description of a handed-over file for the upstream, with a signature over every member.
//
// Pure: the caller computes the signature. Invariant: the signed text depends only on the members, not on their order.

import SpoolgateTextFormats

/// The description of a handed-over file, as a list of named members.
package struct HandoverNotice: Sendable {
    private var members: [(name: String, value: String)] = []

    /// Creates a notice without members.
    package init() {}

    /// Adds a member with a unique name.
    package mutating func add(_ name: String, _ value: String) { members.append((name, value)) }

    /// The text to sign: the name and value of each member, in the byte order of the names.
    ///
    /// Each name and each value is a netstring (its length in bytes, a colon, the bytes, a comma).
    package var signedText: [UInt8] {
        members.sorted { $0.name.utf8.lexicographicallyPrecedes($1.name.utf8) }.flatMap { member in
            [member.name, member.value].flatMap { Array("\($0.utf8.count):\($0),".utf8) }
        }
    }

    /// The members as the content of the request to the upstream, `application/x-www-form-urlencoded`.
    package var content: [UInt8] {
        let pairs = members.map { name, value in
            "\(PercentText.encode(name))=\(PercentText.encode(value))"
        }
        return Array(pairs.joined(separator: "&").utf8)
    }
}
