// The name a dropped upload is given: the client's own, made harmless.
//
// Pure. What a client wrote never reaches a path as it came. The invariant: a name is 1 to 100
// bytes of `A-Za-z0-9._-`, does not begin with a dot and does not end in `.json`, so that it is no path,
// is not hidden and is never taken for a record.

import HTTPTypes

/// A harmless file name.
enum DropName {
    /// Longest name, bytes.
    static let limit = 100

    /// The name for an upload: `filename` of a simple Content-Disposition (RFC 6266 §4.3), else the
    /// last segment of the target's path, percent-decoded; `upload` where both are empty.
    static func name(target: String, fields: HTTPFields) -> String {
        let told = fields[.contentDisposition].flatMap { fileName(disposition: Array($0.utf8)) }
        return harmless(told ?? lastSegment(Array(target.utf8)))
    }

    private static func harmless(_ bytes: [UInt8]) -> String {
        var name = bytes.prefix(limit).map { isPlain($0) ? $0 : UInt8(ascii: "_") }
        if name.isEmpty { name = Array("upload".utf8) }
        if name[0] == UInt8(ascii: ".") { name[0] = UInt8(ascii: "_") }
        if name.suffix(5).map({ $0 | 0x20 }).elementsEqual(".json".utf8) {
            name = name.prefix(limit - 1) + [UInt8(ascii: "_")]
        }
        return String(decoding: name, as: UTF8.self)
    }

    private static func isPlain(_ byte: UInt8) -> Bool {
        (0x30...0x39).contains(byte) || (0x41...0x5a).contains(byte)
            || (0x61...0x7a).contains(byte) || [0x2e, 0x5f, 0x2d].contains(byte)
    }

    private static func lastSegment(_ target: [UInt8]) -> [UInt8] {
        let path = target.prefix { $0 != UInt8(ascii: "?") && $0 != UInt8(ascii: "#") }
        return percentDecoded(afterLastSlash(Array(path)))
    }

    private static func percentDecoded(_ bytes: [UInt8]) -> [UInt8] {
        var decoded: [UInt8] = []
        var rest = bytes[...]
        while let byte = rest.popFirst() {
            let digits = rest.prefix(2)
            if byte == UInt8(ascii: "%"), digits.count == 2,
                digits.allSatisfy({ isHexadecimal($0) }),
                let value = UInt8(String(decoding: digits, as: UTF8.self), radix: 16)
            {
                decoded.append(value)
                rest = rest.dropFirst(2)
            } else {
                decoded.append(byte)
            }
        }
        return decoded
    }

    private static func isHexadecimal(_ byte: UInt8) -> Bool {
        (0x30...0x39).contains(byte) || (0x61...0x66).contains(byte | 0x20)
    }

    /// The `filename` parameter, as a token or a quoted string; nil for anything less simple.
    private static func fileName(disposition: [UInt8]) -> [UInt8]? {
        var rest = disposition.drop { $0 != UInt8(ascii: ";") }
        while rest.popFirst() == UInt8(ascii: ";") {
            rest = rest.drop { $0 == 0x20 || $0 == 0x09 }
            let name = rest.prefix { $0 != UInt8(ascii: "=") && $0 != UInt8(ascii: ";") }
            rest = rest.dropFirst(name.count)
            guard rest.popFirst() == UInt8(ascii: "="), let value = parameterValue(&rest) else {
                return nil
            }
            if name.map({ $0 | 0x20 }).elementsEqual("filename".utf8) {
                let last = afterLastSlash(value)
                return last.isEmpty ? nil : last
            }
            rest = rest.drop { $0 == 0x20 || $0 == 0x09 }
        }
        return nil
    }

    private static func parameterValue(_ rest: inout ArraySlice<UInt8>) -> [UInt8]? {
        guard rest.first == UInt8(ascii: "\"") else {
            let token = rest.prefix { $0 != UInt8(ascii: ";") && $0 > 0x20 }
            rest = rest.dropFirst(token.count)
            return token.isEmpty ? nil : Array(token)
        }
        rest = rest.dropFirst()
        var value: [UInt8] = []
        while let byte = rest.popFirst() {
            if byte == UInt8(ascii: "\"") { return value }
            if byte == UInt8(ascii: "\\"), let escaped = rest.popFirst() {
                value.append(escaped)
            } else {
                value.append(byte)
            }
        }
        return nil
    }

    private static func afterLastSlash(_ bytes: [UInt8]) -> [UInt8] {
        let end = bytes.lastIndex { $0 == UInt8(ascii: "/") || $0 == UInt8(ascii: "\\") }
        return end.map { Array(bytes[($0 + 1)...]) } ?? bytes
    }
}
