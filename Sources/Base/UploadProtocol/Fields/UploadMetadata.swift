// What a client says of an upload in `Upload-Metadata` (tus 1.0, core extension "creation").
//
// Pure. A pair that is malformed is left out, as one that was not sent. Invariant: a key is there once
// and has only visible ASCII characters.

package import HTTPTypes
import SpoolgateTextFormats

/// The pairs of `Upload-Metadata`.
package struct UploadMetadata: Sendable {
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
        for text in text.split(separator: ",") {
            // `try?`: what is no pair is left out.
            guard let pair = try? Self.pair(text), keys.insert(pair.key).inserted else { continue }
            pairs.append(pair)
        }
    }

    /// Why a text is no pair.
    private struct PairFault: Error {
        /// The key, as far as there is one.
        var key: Substring?
        var clause: String
    }

    private static func pair(_ text: Substring) throws(PairFault) -> (key: String, value: String) {
        let words = text.split { $0 == " " || $0 == "\t" }
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

    /// What keeps a value of the field from being what tus says: each key once, and every value Base64.
    ///
    /// - Returns: a clause that names the pair and says why; nil if nothing does.
    package static func fault(of text: String) -> String? {
        // An empty value is no pair, and harmless.
        guard !text.isEmpty else { return nil }
        var keys: Set<String> = []
        let texts = text.split(separator: ",", omittingEmptySubsequences: false)
        for (index, text) in texts.enumerated() {
            do throws(PairFault) {
                let key = try pair(text).key
                guard keys.insert(key).inserted else {
                    throw PairFault(key: key[...], clause: "comes twice")
                }
            } catch {
                let name = error.key.map { ", '\($0.prefix(40))'," } ?? ""
                return "pair \(index + 1)\(name) \(error.clause)"
            }
        }
        return nil
    }

    /// The value of a key; nil if it is absent or empty.
    package subscript(_ key: String) -> String? {
        pairs.first { $0.key == key && !$0.value.isEmpty }?.value
    }

    /// The type of the file: `own`, where that says more than "any bytes", else that of `filetype`.
    ///
    /// A file is no `multipart/…`: whoever reads a form would look for parts in it.
    ///
    /// - Returns: nil where neither tells one.
    package func type(beside own: String?) -> String? {
        if let own, own != MediaType.any { return own }
        return self["filetype"].flatMap(MediaType.wellFormed).flatMap {
            MediaType.isMultipart($0) ? nil : $0
        }
    }

    /// The pairs that do not name or describe the file itself.
    package var others: [(key: String, value: String)] {
        pairs.filter { $0.key != "filename" && $0.key != "filetype" }
    }
}

extension HTTPField.Name {
    /// `Upload-Metadata` (tus 1.0).
    package static let uploadMetadata = HTTPField.Name.made("Upload-Metadata")
}
