// The login of a probe, parsed to explain why it was refused.
//
// Pure. The password is never shown.

import HTTPTypes
import SpoolgateTextFormats

enum ProbeLogin: Sendable, Equatable {
    case none
    /// A login by the scheme Basic with this user name.
    case password(String)
    /// A value that has the scheme Basic but no valid name and password in Base64, or that has no scheme.
    case malformed
    /// The name of another scheme, such as Bearer.
    case other(String)

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
