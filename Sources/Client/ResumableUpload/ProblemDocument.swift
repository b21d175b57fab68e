// The readable sentence of a problem document (RFC 9457).
//
// Only the strings of the outermost object are read. The invariant: no input causes a trap, and the result has no
// control characters.

import HTTPTypes
import SpoolgateTextFormats
import SpoolgateUploadProtocol

enum ProblemDocument {
    /// Returns the problem document's `detail`, or else its `title`; nil if there is neither.
    static func sentence(_ fields: HTTPFields, _ content: [UInt8]) -> String? {
        guard let members = members(fields, content) else { return nil }
        return members["detail"] ?? members["title"]
    }

    /// Returns the problem document's `code`, which identifies a gateway's refusal to programs; nil if it is missing.
    static func code(_ fields: HTTPFields, _ content: [UInt8]) -> String? {
        members(fields, content)?["code"]
    }

    /// Returns the document's strings by name; nil if the content is not a problem document.
    private static func members(_ fields: HTTPFields, _ content: [UInt8]) -> [String: String]? {
        guard let type = fields.value(of: .contentType),
            MediaType.of(type, is: "application/problem+json")
        else { return nil }
        return strings(content)
    }

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

    /// Reads a string after its opening quotation mark; returns nil if the closing one is missing.
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

extension Transfer.Response {
    /// Whether the response names the protocol tus (tus 1.0, `Tus-Resumable` and `Tus-Version`).
    package var namesTus: Bool { fields.contains(.tusResumable) || fields.contains(.tusVersion) }
}
