// The integrity fields (RFC 9530): what a request says of its content and its representation, and what
// a response may tell.
//
// Values only; digests are computed elsewhere. An algorithm that is not known here is ignored (RFC 9530
// §2, §3). Invariant: a value kept here has exactly its algorithm's length.

package import HTTPTypes
import RawStructuredFieldValues
import SpoolgateTextFormats

/// An algorithm that is computed here: of the integrity fields (RFC 9530 §7.2), or of tus alone.
package enum DigestAlgorithm: String, Sendable, Hashable {
    /// SHA-1, which only tus clients use, against errors of transmission.
    case sha1
    /// SHA-256.
    case sha256 = "sha-256"
    /// SHA-512.
    case sha512 = "sha-512"

    /// Those of the integrity fields.
    package static let integrity: [DigestAlgorithm] = [.sha256, .sha512]

    /// The bytes of a digest.
    package var length: Int {
        switch self {
        case .sha1: 20
        case .sha256: 32
        case .sha512: 64
        }
    }
}

/// The known digests of one field, or computed ones.
package struct DigestValues: Sendable, Equatable {
    /// The digests by algorithm, each of its algorithm's length.
    package private(set) var values: [DigestAlgorithm: [UInt8]] = [:]

    /// No digest.
    package init() {}

    /// Reads an integrity field of a request.
    ///
    /// - Parameters:
    ///   - name: `Content-Digest` or `Repr-Digest`.
    ///   - fields: the request's fields; several lines are one Dictionary.
    /// - Throws: `Refusal.invalidDigest` for what is no Dictionary, and for a known algorithm whose value
    ///   is no Byte Sequence of its length: who sends one wants it verified.
    package init(_ name: HTTPField.Name, in fields: HTTPFields) throws(Refusal) {
        guard let dictionary = try Self.dictionary(name, in: fields) else { return }
        for algorithm in DigestAlgorithm.integrity {
            guard let member = dictionary[algorithm.rawValue] else { continue }
            guard case .item(let item) = member,
                case .undecodedByteSequence(let text) = item.rfc9651BareItem,
                let bytes = Base64.decode(text)
            else {
                throw .invalidDigest(name, "\(algorithm.rawValue) is not followed by =:base64:")
            }
            guard bytes.count == algorithm.length else {
                throw .invalidDigest(
                    name,
                    "a \(algorithm.rawValue) digest has \(algorithm.length) bytes, not \(bytes.count)"
                )
            }
            values[algorithm] = bytes
        }
    }

    /// Whether there is none.
    package var isEmpty: Bool { values.isEmpty }

    /// The algorithms that there are digests of.
    package var algorithms: Set<DigestAlgorithm> { Set(values.keys) }

    /// The digest of an algorithm; of its length when it is set.
    package subscript(_ algorithm: DigestAlgorithm) -> [UInt8]? {
        get { values[algorithm] }
        set {
            precondition(newValue.map { $0.count == algorithm.length } ?? true, "a short digest")
            values[algorithm] = newValue
        }
    }

    /// Whether every digest here is the same in `computed`, which has all the algorithms.
    package func agrees(with computed: DigestValues) -> Bool {
        values.allSatisfy { computed.values[$0.key] == $0.value }
    }

    /// These digests as a field's value (RFC 9530 §2); empty where there is none.
    package var fieldValue: String {
        DigestAlgorithm.integrity.compactMap { algorithm in
            values[algorithm].map { "\(algorithm.rawValue)=:\(Base64.encode($0)):" }
        }.joined(separator: ", ")
    }

    fileprivate static func dictionary(
        _ name: HTTPField.Name,
        in fields: HTTPFields
    ) throws(Refusal) -> OrderedMap<String, ItemOrInnerList>? {
        guard let value = fields.value(of: name) else { return nil }
        var parser = StructuredFieldValueParser(Array(value.utf8))
        do {
            return try parser.parseDictionaryFieldValue()
        } catch {
            throw .invalidDigest(name, "it is no list of algorithm=:base64:")
        }
    }
}

extension DigestAlgorithm {
    /// The algorithm a client wants a response's `Repr-Digest` by: of those it accepts the one it
    /// prefers (RFC 9530 §4).
    ///
    /// A preference is an Integer from 0, not acceptable, to 10. What is malformed is ignored.
    package static func wanted(in fields: HTTPFields) -> DigestAlgorithm? {
        // `try?`: a wish that cannot be read is none.
        guard let dictionary = try? DigestValues.dictionary(.wantReprDigest, in: fields) else {
            return nil
        }
        var best: (algorithm: DigestAlgorithm, preference: Int64)?
        for algorithm in integrity {
            guard case .item(let item)? = dictionary[algorithm.rawValue],
                case .integer(let preference) = item.rfc9651BareItem, (1...10).contains(preference)
            else { continue }
            if preference > best?.preference ?? 0 { best = (algorithm, preference) }
        }
        return best?.algorithm
    }
}

extension HTTPField.Name {
    /// `Content-Digest`, a Dictionary of Byte Sequences (RFC 9530 §2).
    package static let contentDigest = HTTPField.Name.made("Content-Digest")
    /// `Repr-Digest`, a Dictionary of Byte Sequences (RFC 9530 §3).
    package static let reprDigest = HTTPField.Name.made("Repr-Digest")
    /// `Want-Repr-Digest`, a Dictionary of Integers (RFC 9530 §4).
    package static let wantReprDigest = HTTPField.Name.made("Want-Repr-Digest")
}
