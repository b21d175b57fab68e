// Authentication of a connection instead of a request: NTLM, Negotiate and Kerberos.
//
// A server with such a scheme attributes every further request on the connection to the client that logged in (RFC 4559
// §6, [MS-NTHT] §1.3). Many clients share the gateway's connections, so the gateway closes a connection after an
// exchange that used or offered such a scheme. A login needs several requests on one connection, and therefore never
// succeeds.
//
// Invariant: a scheme is found at any position of a list and in any letter case, but not inside a quoted string.

import HTTPTypes
import SpoolgateUploadProtocol

extension HTTPFields {
    var authenticateConnection: Bool {
        for field in self {
            // The first letter excludes most fields of a message.
            switch field.name.canonicalName.utf8.first {
            case UInt8(ascii: "a"), UInt8(ascii: "p"), UInt8(ascii: "w"):
                if field.authenticatesConnection { return true }
            default: break
            }
        }
        return false
    }
}

extension HTTPField {
    var authenticatesConnection: Bool {
        switch name.canonicalName {
        case "authorization", "www-authenticate", "proxy-authenticate", "authentication-info",
            "proxy-authentication-info":
            Self.namesConnectionScheme(value)
        // Microsoft's servers declare such authentication in this field.
        case "persistent-auth": value.lowercased().contains("true")
        default: false
        }
    }

    private static let connectionSchemes = ["ntlm", "negotiate", "kerberos", "nego2"]

    /// Whether an element of a list begins with one of `connectionSchemes` (RFC 9110 §11.6.1).
    private static func namesConnectionScheme(_ value: String) -> Bool {
        var isQuoted = false
        var isEscaped = false
        var word: [UInt8]? = []
        for byte in value.utf8 {
            if isQuoted {
                isQuoted = isEscaped || byte != UInt8(ascii: "\"")
                isEscaped = !isEscaped && byte == UInt8(ascii: "\\")
                continue
            }
            switch byte {
            case UInt8(ascii: ","):
                if isConnectionScheme(word) { return true }
                word = []
            case UInt8(ascii: " "), UInt8(ascii: "\t"):
                if isConnectionScheme(word) { return true }
                // Only the first word of an element is a scheme.
                if word?.isEmpty == false { word = nil }
            case UInt8(ascii: "\""):
                isQuoted = true
                word = nil
            default: word?.append(byte)
            }
        }
        return isConnectionScheme(word)
    }

    private static func isConnectionScheme(_ word: [UInt8]?) -> Bool {
        guard let word, !word.isEmpty else { return false }
        return connectionSchemes.contains(String(decoding: word, as: UTF8.self).lowercased())
    }
}
