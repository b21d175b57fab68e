// The small content that tells an upstream of a file it can take, with a signature over every member.
//
// Pure: the code is computed by what is passed in. Invariant: the text that is signed is made of the
// members alone, so that it does not depend on their order, their encoding or what else a form has.

package import Settings
import TextFormats

/// What an upstream is told of a file.
package struct HandoverNotice: Sendable, Equatable {
    /// One member's value.
    package enum Value: Sendable, Equatable {
        /// A text.
        case text(String)
        /// A whole number; in JSON without quotes.
        case number(Int64)

        package var text: String {
            switch self {
            case .text(let text): text
            case .number(let number): String(number)
            }
        }
    }

    private var members: [(name: String, value: Value)] = []

    /// A notice without members.
    package init() {}

    /// Adds a member; no name comes twice.
    package mutating func add(_ name: String, _ value: Value) { members.append((name, value)) }

    /// The text that is signed: of each member, in the order of the names' bytes, name and value, each as
    /// a netstring (its length in bytes, a colon, the bytes, a comma).
    package var signedText: [UInt8] {
        members.sorted { $0.name.utf8.lexicographicallyPrecedes($1.name.utf8) }.flatMap { member in
            [member.name, member.value.text].flatMap { Array("\($0.utf8.count):\($0),".utf8) }
        }
    }

    /// The content of the request.
    package func content(_ encoding: PathSettings.Encoding) -> [UInt8] {
        switch encoding {
        case .form:
            Array(
                members.map {
                    "\(PercentText.encode($0.name))=\(PercentText.encode($0.value.text))"
                }.joined(separator: "&").utf8
            )
        case .json:
            Array(
                JSON.object(
                    members.map { member in
                        switch member.value {
                        case .text(let text): (member.name, .string(text))
                        case .number(let number): (member.name, .integer(number))
                        }
                    }
                ).text.utf8
            )
        }
    }

    /// Member-wise equality; the order counts.
    package static func == (one: HandoverNotice, other: HandoverNotice) -> Bool {
        one.members.elementsEqual(other.members) { $0 == $1 }
    }
}
