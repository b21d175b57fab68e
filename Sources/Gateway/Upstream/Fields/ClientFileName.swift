// The file name a client gives its upload, and forms of it that do no harm.
//
// Pure. Sources in this order: Content-Disposition (RFC 6266 §4.3: `filename*` before `filename`),
// `filename` of Upload-Metadata, the last segment of the target's path. Invariant: no form is a path, is
// empty or has a control character.

package import HTTPTypes
import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// The name of an upload's file.
package struct ClientFileName: Sendable, Equatable {
    /// The name of a file to which its client gave none.
    package static let unnamed = "upload"

    /// The last part of the name as the client meant it; any text, `unnamed` if it gave none.
    package let told: String

    /// Finds the name in a creation.
    package init(target: String, fields: HTTPFields) {
        let disposition = fields[.contentDisposition].flatMap { Disposition($0).fileName }
        told =
            [disposition, UploadMetadata(fields)["filename"], Self.lastSegment(target)].lazy
            .compactMap { $0.flatMap(Self.lastPart) }.first ?? Self.unnamed
    }

    /// The name for people and for forms: UTF-8 without control characters, at most 255 bytes; what is
    /// too long is cut before its ending.
    package var text: String {
        let name = printable
        if ["", ".", ".."].contains(name) { return Self.unnamed }
        return Self.cut(name, to: 255)
    }

    /// Most bytes of a name that is stored: with an identity, a hyphen, the ending of a record, and what a file has around
    /// its name until it is whole, it has the 255 bytes of a file's name (NAME_MAX).
    package static let mostStored = 255 - 27 - ".json".utf8.count - "..part".utf8.count

    /// The name of a file or an object that is stored: UTF-8 without control characters, 1 to `limit` bytes that do not
    /// begin with a dot or a hyphen and do not end in `.json`; what is too long is cut before its ending.
    package func stored(atMost limit: Int = mostStored) -> String {
        Self.fit(printable, to: limit)
    }

    /// Calls `body` with the name that is stored, and once more with `harmless` if the file system does not take that.
    ///
    /// - Parameter body: makes files of that name.
    /// - Returns: what `body` returns.
    /// - Throws: what `body` throws.
    package func storing<R>(_ body: (String) throws -> R) throws -> R {
        let name = stored()
        do {
            return try body(name)
        } catch let error as SystemError where error.isOfName && name != harmless {
            return try body(harmless)
        }
    }

    /// The name that every file system and program takes: as `stored`, but at most 100 bytes of `A-Za-z0-9._-`.
    package var harmless: String {
        Self.fit(String(decoding: plainBytes, as: UTF8.self), to: 100)
    }

    /// The name with an underscore in place of each byte that is none of `A-Za-z0-9._-`.
    private var plainBytes: [UInt8] {
        told.utf8.map { $0.isUnreserved && $0 != UInt8(ascii: "~") ? $0 : UInt8(ascii: "_") }
    }

    /// The name that builds without names in UTF-8 gave a stored file, 1 to 100 bytes.
    ///
    /// An upload that one of them has stored, and not noted as delivered, is stored under this name again.
    package var formerlyStored: String {
        let limit = 100
        var name = Array(plainBytes.prefix(limit))
        if name.first == UInt8(ascii: ".") { name[0] = UInt8(ascii: "_") }
        if name.suffix(5).map({ $0 | 0x20 }).elementsEqual(".json".utf8) {
            name = name.prefix(limit - 1) + [UInt8(ascii: "_")]
        }
        return String(decoding: name, as: UTF8.self)
    }

    private var printable: String {
        var kept = String.UnicodeScalarView()
        for scalar in told.unicodeScalars where !scalar.isUnprintable { kept.append(scalar) }
        return String(kept)
    }

    private static func fit(_ name: String, to limit: Int) -> String {
        var name = cut(name.isEmpty ? "upload" : name, to: limit)
        // A program that is given the name must not take it for an option, nor a listing leave it out.
        if ".-".utf8.contains(name.utf8[name.startIndex]) {
            name = "_" + name.unicodeScalars.dropFirst().map(String.init).joined()
        }
        // That is a record's.
        guard name.utf8.suffix(5).map({ $0 | 0x20 }).elementsEqual(".json".utf8) else {
            return name
        }
        return cut(name, to: limit - 1) + "_"
    }

    private static func cut(_ name: String, to limit: Int) -> String {
        guard name.utf8.count > limit else { return name }
        var ending = name[name.endIndex...]
        if let dot = name.utf8.lastIndex(of: UInt8(ascii: ".")), name.utf8[dot...].count <= 16 {
            ending = name[dot...]
        }
        var room = limit - ending.utf8.count
        var stem = String.UnicodeScalarView()
        for scalar in name[..<ending.startIndex].unicodeScalars {
            room -= UTF8.width(scalar)
            if room < 0 { break }
            stem.append(scalar)
        }
        return String(stem) + ending
    }

    /// What follows the last slash of either kind; nil if that is nothing.
    private static func lastPart(_ name: String) -> String? {
        let last = name.unicodeScalars.split(omittingEmptySubsequences: false) {
            $0 == "/" || $0 == "\\"
        }.last
        return last.flatMap { $0.isEmpty ? nil : String($0) }
    }

    private static func lastSegment(_ target: String) -> String {
        let path = target.utf8.prefix { $0 != UInt8(ascii: "?") && $0 != UInt8(ascii: "#") }
        let start = path.lastIndex { $0 == UInt8(ascii: "/") }.map { path.index(after: $0) }
        let segment = PercentText.decode(path[(start ?? path.startIndex)...])
        return String(decoding: segment, as: UTF8.self)
    }
}

/// The parameters of a Content-Disposition that name a file.
private struct Disposition {
    private(set) var fileName: String?

    /// Reads parameter after parameter; the first that is malformed ends it.
    init(_ value: String) {
        var plain: String?
        var rest = Array(value.utf8)[...]
        rest = rest.drop { $0 != UInt8(ascii: ";") }
        while rest.popFirst() == UInt8(ascii: ";") {
            rest = rest.drop { $0 == 0x20 || $0 == 0x09 }
            let name = rest.prefix { $0 != UInt8(ascii: "=") && $0 != UInt8(ascii: ";") }
            rest = rest.dropFirst(name.count)
            guard rest.popFirst() == UInt8(ascii: "="), let value = Self.value(&rest) else { break }
            switch String(decoding: name, as: UTF8.self).lowercased() {
            case "filename*": fileName = fileName ?? Self.extended(value)
            case "filename": plain = plain ?? String(decoding: value, as: UTF8.self)
            default: break
            }
            rest = rest.drop { $0 == 0x20 || $0 == 0x09 }
        }
        if fileName?.isEmpty ?? true { fileName = plain }
    }

    /// A token or a quoted string (RFC 9110 §5.6).
    private static func value(_ rest: inout ArraySlice<UInt8>) -> [UInt8]? {
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

    /// `charset'language'value` (RFC 8187 §3.2); nil for another character set than UTF-8 and
    /// ISO-8859-1.
    private static func extended(_ value: [UInt8]) -> String? {
        let parts = value.split(
            separator: UInt8(ascii: "'"),
            maxSplits: 2,
            omittingEmptySubsequences: false
        )
        guard parts.count == 3 else { return nil }
        let bytes = PercentText.decode(parts[2])
        switch String(decoding: parts[0], as: UTF8.self).lowercased() {
        case "utf-8":
            return String(decoding: bytes, as: UTF8.self)
        case "iso-8859-1":
            var text = String.UnicodeScalarView()
            for byte in bytes { text.append(Unicode.Scalar(byte)) }
            return String(text)
        default:
            return nil
        }
    }
}
