// The name of one running gateway in `Via`, by which it knows requests that come back to it.
//
// Pure: the random token is passed in. Invariant: two gateways, also of one spool, have different names, so that one
// may stand behind the other.

package import HTTPTypes
import SpoolgateTextFormats

/// The pseudonym of one gateway, for as long as its process runs (RFC 9110 §7.6.3).
///
/// Any thread; never changes.
package final class GatewayName: Sendable {
    /// What the gateway adds to each request that it sends.
    package let via: HTTPField
    private let text: String

    /// Makes a name.
    ///
    /// - Parameter token: letters and digits that no other gateway has.
    package init(token: String) {
        text = "spoolgate-\(token)"
        via = HTTPField(name: .via, value: "1.1 \(text)")
    }

    /// Whether the gateway has sent a request itself, in this or another form.
    ///
    /// - Parameter fields: those of the request.
    /// - Returns: whether its name is in `Via`.
    package func isNamed(in fields: HTTPFields) -> Bool {
        // Mostly there is none.
        fields.contains(.via) && isNamed(in: fields[.via] ?? "")
    }

    /// `1.0 fred, HTTP/1.1 spoolgate-… (a comment)`: the second word of each is a name.
    private func isNamed(in value: String) -> Bool {
        value.utf8.split(separator: UInt8(ascii: ",")).contains { hop in
            let words = hop.split { $0 == 0x20 || $0 == 0x09 }
            return words.count > 1 && words[1].elementsEqual(text.utf8)
        }
    }
}
