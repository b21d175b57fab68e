// The client's name for the file of an upload, and the safe forms of that name.
//
// The sources, in this order, are Content-Disposition (RFC 6266 §4.3: `filename*` before `filename`), `filename` of
// Upload-Metadata, and the last segment of the target's path. Invariant: no form is a path, is empty or contains a
// control character.

package import HTTPTypes
import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// The name that a client gave to the file of an upload.
package struct ClientFileName: Sendable, Equatable {
    package static let unnamed = "upload"

    /// The client's name after its last slash or backslash, which may be any text; `unnamed` if the client sent no
    /// name.
    package let stated: String

    /// Finds the name in the request target and fields of a creation.
    package init(target: String, fields: HTTPFields) {
        let disposition = fields[.contentDisposition].flatMap { Disposition($0).fileName }
        stated =
            [disposition, UploadMetadata(fields)["filename"], Self.lastSegment(target)].lazy
            .compactMap { $0.flatMap(Self.lastPart) }.first ?? Self.unnamed
    }

    /// The name to show to people and to use in forms: UTF-8 without control characters, at most 255 bytes.
    ///
    /// A longer name is shortened before its extension.
    package var text: String {
        let name = printable
        if ["", ".", ".."].contains(name) { return Self.unnamed }
        return Self.cut(name, to: 255)
    }

    /// The maximum number of bytes in the name of a stored file.
    ///
    /// An identity, a hyphen, the extension of a record and the affixes of an incomplete file fill the rest of 255
    /// bytes (NAME_MAX).
    package static let maximumStored = 255 - 27 - ".json".utf8.count - "..part".utf8.count

    /// The name of a stored file or object: UTF-8 without control characters, 1 to `limit` bytes.
    ///
    /// It is shortened before its extension, does not begin with a dot or a hyphen, and does not end in `.json`.
    package func stored(upTo limit: Int = maximumStored) -> String {
        Self.fit(printable, to: limit)
    }

    /// Calls `body` with the stored name, and once more with `harmless` if the file system refuses the first name.
    package func storing<R>(_ body: (String) throws -> R) throws -> R {
        let name = stored()
        do {
            return try body(name)
        } catch let error as SystemError where error.isOfName && name != harmless {
            return try body(harmless)
        }
    }

    /// A name that every file system and program accepts, like `stored`, but at most 100 bytes of `A-Za-z0-9._-`.
    package var harmless: String {
        Self.fit(String(decoding: plainBytes, as: UTF8.self), to: 100)
    }

    private var plainBytes: [UInt8] {
        stated.utf8.map { $0.isUnreserved && $0 != UInt8(ascii: "~") ? $0 : UInt8(ascii: "_") }
    }

    private var printable: String {
        var kept = String.UnicodeScalarView()
        for scalar in stated.unicodeScalars where !scalar.isUnprintable { kept.append(scalar) }
        return String(kept)
    }

    private static func fit(_ name: String, to limit: Int) -> String {
        var name = cut(name.isEmpty ? "upload" : name, to: limit)
        // A program must not read the name as an option, and a listing must not omit it.
        if ".-".utf8.contains(name.utf8[name.startIndex]) {
            name = "_" + name.unicodeScalars.dropFirst().map(String.init).joined()
        }
        // `.json` is the extension of records.
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

private struct Disposition {
    private(set) var fileName: String?

    /// Reads the parameters of a `Content-Disposition` value, up to the first malformed one.
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

    /// Reads a token or a quoted string (RFC 9110 §5.6) from the start of `rest`.
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

    /// Decodes `charset'language'value` (RFC 8187 §3.2); returns nil for character sets other than UTF-8 and
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
