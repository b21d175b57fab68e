// The sentence in a problem document (RFC 9457), for people.
//
// Only the strings of the outermost object are looked at. The invariant: no bytes of a server can trap, and what is
// shown has no control characters.

import HTTPTypes
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// What a problem document says.
enum ProblemDocument {
    /// Its detail, else its title; nil where there is none.
    static func sentence(_ fields: HTTPFields, _ content: [UInt8]) -> String? {
        guard let members = members(fields, content) else { return nil }
        return members["detail"] ?? members["title"]
    }

    /// Its `code`, by which programs tell a gateway's refusals; nil where there is none.
    static func code(_ fields: HTTPFields, _ content: [UInt8]) -> String? {
        members(fields, content)?["code"]
    }

    /// The members of a problem document that are strings; nil where there is no such document.
    private static func members(_ fields: HTTPFields, _ content: [UInt8]) -> [String: String]? {
        guard let type = fields.value(of: .contentType),
            MediaType.of(type, is: "application/problem+json")
        else { return nil }
        return strings(content)
    }

    /// The members of the outermost object that are strings.
    private static func strings(_ content: [UInt8]) -> [String: String] {
        var members: [String: String] = [:]
        var rest = content[...]
        var depth = 0
        var name: String?
        var isValue = false
        while let byte = rest.popFirst() {
            switch byte {
            case UInt8(ascii: "{"), UInt8(ascii: "["): depth += 1
            case UInt8(ascii: "}"), UInt8(ascii: "]"): depth -= 1
            case UInt8(ascii: ":"): isValue = true
            case UInt8(ascii: ","): isValue = false
            case UInt8(ascii: "\""):
                guard let text = string(&rest) else { return members }
                if depth == 1, !isValue { name = text }
                if depth == 1, isValue, let name { members[name] = text }
            default: break
            }
        }
        return members
    }

    /// The string that begins behind its quotation mark; nil where it does not end.
    private static func string(_ rest: inout ArraySlice<UInt8>) -> String? {
        var bytes: [UInt8] = []
        while let byte = rest.popFirst() {
            if byte == UInt8(ascii: "\"") {
                let text = String(decoding: bytes, as: UTF8.self)
                return String(text.unicodeScalars.map { $0.isUnprintable ? " " : Character($0) })
            }
            guard byte == UInt8(ascii: "\\") else {
                bytes.append(byte)
                continue
            }
            guard let escaped = rest.popFirst() else { return nil }
            switch escaped {
            case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): bytes.append(escaped)
            case UInt8(ascii: "u"):
                let digits = String(decoding: rest.prefix(4), as: UTF8.self)
                rest = rest.dropFirst(4)
                let scalar = UInt32(digits, radix: 16).flatMap { Unicode.Scalar($0) }
                bytes.append(contentsOf: String(scalar.map { Character($0) } ?? "?").utf8)
            default: bytes.append(UInt8(ascii: " "))
            }
        }
        return nil
    }
}

extension Transfer.Answer {
    /// Whether the server says that it speaks tus (tus 1.0, Tus-Resumable and Tus-Version).
    package var namesTus: Bool { fields.contains(.tusResumable) || fields.contains(.tusVersion) }
}
