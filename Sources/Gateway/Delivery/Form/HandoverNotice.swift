// The small content that tells an upstream of a file it can take, with a signature over every member.
//
// Pure: the code is computed by what is passed in. Invariant: the text that is signed is made of the
// members alone, so that it does not depend on their order, their encoding or what else a form has.

package import SpoolgateSettings
package import SpoolgateTextFormats

/// What an upstream is told of a file.
package struct HandoverNotice: Sendable {
    private var members: [(name: String, value: JSON)] = []

    /// A notice without members.
    package init() {}

    /// Adds a member, a string or an integer; no name comes twice.
    package mutating func add(_ name: String, _ value: JSON) { members.append((name, value)) }

    /// Names and values as texts.
    private var texts: [(name: String, value: String)] {
        members.map { name, value in
            if case .string(let text) = value { (name, text) } else { (name, value.text) }
        }
    }

    /// The text that is signed: of each member, in the order of the names' bytes, name and value, each as
    /// a netstring (its length in bytes, a colon, the bytes, a comma).
    package var signedText: [UInt8] {
        texts.sorted { $0.name.utf8.lexicographicallyPrecedes($1.name.utf8) }.flatMap { member in
            [member.name, member.value].flatMap { Array("\($0.utf8.count):\($0),".utf8) }
        }
    }

    /// The content of the request.
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
