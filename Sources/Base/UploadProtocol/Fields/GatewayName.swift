// The name of a running gateway in `Via`, which detects request loops.
//
// Invariant: gateways have different names even if they share a spool, so that one may be the other's upstream.

package import HTTPTypes
import SpoolgateTextFormats

/// The pseudonym of one gateway for the lifetime of its process (RFC 9110 §7.6.3).
///
/// Immutable and thread-safe.
package final class GatewayName: Sendable {
    /// The field that is added to each request that the gateway sends.
    package let via: HTTPField
    private let text: String

    /// Creates a name; `token` must consist of letters and digits and be unique to this gateway.
    package init(token: String) {
        text = "spoolgate-\(token)"
        via = HTTPField(name: .via, value: "1.1 \(text)")
    }

    /// Whether `Via` shows that a request has already passed through this gateway, possibly in another form.
    package func isNamed(in fields: HTTPFields) -> Bool {
        fields.contains(.via) && isNamed(in: fields[.via] ?? "")
    }

    /// In `1.0 fred, HTTP/1.1 spoolgate-… (a comment)`, the second word of each entry is a name.
    private func isNamed(in value: String) -> Bool {
        value.utf8.split(separator: UInt8(ascii: ",")).contains { hop in
            let words = hop.split { $0 == 0x20 || $0 == 0x09 }
            return words.count > 1 && words[1].elementsEqual(text.utf8)
        }
    }
}
