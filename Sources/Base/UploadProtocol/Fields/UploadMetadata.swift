// The metadata of tus 1.0 (extension "creation").
//
// Pure. A malformed pair is ignored. Invariant: keys are unique and consist of visible ASCII characters.

package import HTTPTypes
import SpoolgateTextFormats

/// The keys and values of a client's `Upload-Metadata`.
package struct UploadMetadata: Sendable {
    /// The pairs in the order sent; a value may contain any text.
    package private(set) var pairs: [(key: String, value: String)] = []

    /// Parses pairs `key base64`, separated by commas; the value may be missing.
    ///
    /// If a key is repeated, the first pair is used. Invalid UTF-8 in a value is replaced by U+FFFD. A field of more
    /// than `maximumSize` bytes has no pairs.
    package init(_ fields: HTTPFields) {
        let text = fields[.uploadMetadata] ?? ""
        guard text.utf8.count <= Self.maximumSize else { return }
        var keys: Set<String> = []
        for text in text.utf8.split(separator: UInt8(ascii: ",")) {
            // An invalid pair is ignored.
            guard let pair = try? Self.pair(text), keys.insert(pair.key).inserted else { continue }
            pairs.append(pair)
        }
    }

    /// The maximum size of the field in bytes, because it is parsed before its client is authorized.
    static let maximumSize = 64 << 10

    private struct PairFault: Error {
        var key: Substring?
        var clause: String
    }

    /// Splits bytes, because a combining mark would hide a separator.
    private static func pair(
        _ text: Substring.UTF8View
    ) throws(PairFault) -> (key: String, value: String) {
        let words = text.split { $0 == 0x20 || $0 == 0x09 }.map { Substring($0) }
        guard let key = words.first else { throw PairFault(clause: "is empty") }
        guard words.count <= 2 else {
            throw PairFault(key: key, clause: "has more than a key and a value")
        }
        guard key.utf8.allSatisfy({ (0x21...0x7e).contains($0) }) else {
            throw PairFault(key: key, clause: "has a key that is not ASCII")
        }
        guard let value = Base64.decode(words.count == 2 ? words[1] : "") else {
            throw PairFault(key: key, clause: "has a value that is not Base64")
        }
        return (String(key), String(decoding: value, as: UTF8.self))
    }

    /// Checks that each key occurs once and every value is Base64, as tus requires.
    ///
    /// - Returns: a clause that names the invalid pair and the reason, or nil if all are valid.
    package static func fault(of text: String) -> String? {
        // An empty value has no pair and is harmless.
        guard !text.isEmpty else { return nil }
        guard text.utf8.count <= maximumSize else {
            return "it exceeds \(maximumSize) bytes"
        }
        var keys: Set<String> = []
        let comma = UInt8(ascii: ",")
        let texts = text.utf8.split(separator: comma, omittingEmptySubsequences: false)
        for (index, text) in texts.enumerated() {
            do throws(PairFault) {
                let key = try pair(text).key
                guard keys.insert(key).inserted else {
                    throw PairFault(key: key[...], clause: "repeats an earlier key")
                }
            } catch {
                let name = error.key.map { ", '\($0.prefix(40))'," } ?? ""
                return "pair \(index + 1)\(name) \(error.clause)"
            }
        }
        return nil
    }

    /// The value of a key; nil if the key is missing or its value is empty.
    package subscript(_ key: String) -> String? {
        pairs.first { $0.key == key && !$0.value.isEmpty }?.value
    }

    /// Returns the media type of the uploaded file, or nil.
    ///
    /// The type is `own`, the request's media type, if more specific than `application/octet-stream`; otherwise
    /// `filetype`. A `multipart/…` type in `filetype` is ignored, because the upstream would parse the file as a form.
    package func type(with own: String?) -> String? {
        if let own, own != MediaType.any { return own }
        return self["filetype"].flatMap(MediaType.wellFormed).flatMap {
            MediaType.isMultipart($0) ? nil : $0
        }
    }

    /// All pairs except those for the file's name and type.
    package var others: [(key: String, value: String)] {
        pairs.filter { $0.key != "filename" && $0.key != "filetype" }
    }
}

extension HTTPField.Name {
    package static let uploadMetadata = HTTPField.Name.made("Upload-Metadata")
}
