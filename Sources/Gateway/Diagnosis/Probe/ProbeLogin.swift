// The login that a probe was given, taken apart as far as its mistakes need.
//
// Pure. The password is never shown.

import HTTPTypes
import SpoolgateTextFormats

/// The field `Authorization` of a probe's requests.
enum ProbeLogin: Sendable, Equatable {
    /// There is none.
    case none
    /// A name and a password, by Basic; the name.
    case password(String)
    /// It says Basic, or nothing, and no name and password follow in Base64.
    case malformed
    /// Another scheme, such as Bearer.
    case other(String)

    /// Reads it from the fields of each request.
    init(_ fields: HTTPFields) {
        guard let value = fields[.authorization] else {
            self = .none
            return
        }
        let words = value.split(separator: " ", omittingEmptySubsequences: true)
        guard words.count == 2, words[0].lowercased() == "basic" else {
            let isOther = words.count > 1 && words[0].lowercased() != "basic"
            self = isOther ? .other(String(words[0])) : .malformed
            return
        }
        guard let bytes = Base64.decode(String(words[1])),
            let colon = bytes.firstIndex(of: UInt8(ascii: ":"))
        else {
            self = .malformed
            return
        }
        self = .password(String(decoding: bytes[..<colon], as: UTF8.self))
    }
}
