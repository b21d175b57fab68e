// What a client says of an upload in `Upload-Metadata` (tus 1.0, core extension "creation").
//
// Pure. A pair that is malformed is left out, as one that was not sent. Invariant: a key is there once
// and has only visible ASCII characters.

package import HTTPTypes
import TextFormats

/// The pairs of `Upload-Metadata`.
package struct UploadMetadata: Sendable, Equatable {
    /// The pairs in the order sent; a value may hold any text.
    package private(set) var pairs: [(key: String, value: String)] = []

    /// Reads the pairs of a creation: `key base64`, comma-separated; the value may be absent.
    ///
    /// Of a key that comes twice the first counts. A value that is no UTF-8 has U+FFFD in its place.
    package init(_ fields: HTTPFields) {
        if let text = fields[.uploadMetadata] { self.init(text) } else { self.init("") }
    }

    private init(_ text: String) {
        var keys: Set<String> = []
        for pair in text.split(separator: ",") {
            let words = pair.split { $0 == " " || $0 == "\t" }
            guard let key = words.first, words.count <= 2,
                key.utf8.allSatisfy({ (0x21...0x7e).contains($0) }),
                let value = Base64.decode(words.count == 2 ? words[1] : ""),
                keys.insert(String(key)).inserted
            else { continue }
            pairs.append((String(key), String(decoding: value, as: UTF8.self)))
        }
    }

    /// Whether a value of the field is what tus says: each key once, and every value Base64.
    package static func isWellFormed(_ text: String) -> Bool {
        // An empty value is no pair, and harmless.
        let count =
            text.isEmpty ? 0 : text.split(separator: ",", omittingEmptySubsequences: false).count
        return UploadMetadata(text).pairs.count == count
    }

    /// The value of a key; nil if it is absent or empty.
    package subscript(_ key: String) -> String? {
        pairs.first { $0.key == key && !$0.value.isEmpty }?.value
    }

    /// The type of the file: `own`, where that says more than "any bytes", else that of `filetype`.
    ///
    /// - Returns: nil where neither tells one.
    package func type(beside own: String?) -> String? {
        if let own, own != MediaType.any { return own }
        return self["filetype"].flatMap(MediaType.wellFormed)
    }

    /// The pairs that do not name or describe the file itself.
    package var others: [(key: String, value: String)] {
        pairs.filter { $0.key != "filename" && $0.key != "filetype" }
    }

    /// Pair-wise equality.
    package static func == (one: UploadMetadata, other: UploadMetadata) -> Bool {
        one.pairs.elementsEqual(other.pairs) { $0 == $1 }
    }
}

extension HTTPField.Name {
    /// `Upload-Metadata` (tus 1.0).
    package static let uploadMetadata = HTTPField.Name.made("Upload-Metadata")
}
