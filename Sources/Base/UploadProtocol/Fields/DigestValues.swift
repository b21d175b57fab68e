// The integrity fields (RFC 9530) of requests and responses.
//
// An unknown algorithm is ignored (RFC 9530 §2, §3). Invariant: each stored value has the length of its algorithm.

package import HTTPTypes
import RawStructuredFieldValues
import SpoolgateTextFormats

/// A supported digest algorithm, of the integrity fields (RFC 9530 §7.2) or of tus only.
package enum DigestAlgorithm: String, Sendable, Hashable {
    /// Used only by tus clients, to detect transmission errors.
    case sha1
    case sha256 = "sha-256"
    case sha512 = "sha-512"

    /// The algorithms of the integrity fields.
    package static let integrity: [DigestAlgorithm] = [.sha256, .sha512]

    /// The length of a digest in bytes.
    package var length: Int {
        switch self {
        case .sha1: 20
        case .sha256: 32
        case .sha512: 64
        }
    }
}

/// Digests by algorithm, either read from one field or computed.
package struct DigestValues: Sendable, Equatable {
    package private(set) var values: [DigestAlgorithm: [UInt8]] = [:]

    /// Creates an empty set of digests.
    package init() {}

    /// Reads an integrity field of a request, `Content-Digest` or `Repr-Digest`.
    ///
    /// Several lines of one field form one Dictionary.
    ///
    /// - Throws: `Refusal.invalidDigest` if the field is not a Dictionary, or if the value of a known algorithm is
    ///   not a Byte Sequence of that algorithm's length. Such a field is not ignored, because a client that sends a
    ///   digest expects it to be verified.
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

    package var isEmpty: Bool { values.isEmpty }

    package var algorithms: Set<DigestAlgorithm> { Set(values.keys) }

    /// The digest of an algorithm, or nil if missing; a value being set must have the length of the algorithm's
    /// digests.
    package subscript(_ algorithm: DigestAlgorithm) -> [UInt8]? {
        get { values[algorithm] }
        set {
            precondition(
                newValue.map { $0.count == algorithm.length } ?? true,
                "wrong length of a digest"
            )
            values[algorithm] = newValue
        }
    }

    /// Whether `computed` contains each of these digests with the same value.
    package func agrees(with computed: DigestValues) -> Bool {
        values.allSatisfy { computed.values[$0.key] == $0.value }
    }

    /// The digests as a field value (RFC 9530 §2), or an empty text if there are no digests.
    package var fieldValue: String {
        DigestAlgorithm.integrity.compactMap(fieldValue).joined(separator: ", ")
    }

    /// The value of a field with one of the digests; nil if it is missing.
    package func fieldValue(of algorithm: DigestAlgorithm) -> String? {
        values[algorithm].map { "\(algorithm.rawValue)=:\(Base64.encode($0)):" }
    }

    fileprivate static func dictionary(
        _ name: HTTPField.Name,
        in fields: HTTPFields
    ) throws(Refusal) -> OrderedMap<String, ItemOrInnerList>? {
        guard let value = fields.value(of: name) else { return nil }
        guard var parser = StructuredField.parser(of: value) else {
            throw .invalidDigest(name, "it is too long or has too many members")
        }
        do {
            return try parser.parseDictionaryFieldValue()
        } catch {
            throw .invalidDigest(name, "it is not a list of algorithm=:base64:")
        }
    }
}

extension DigestAlgorithm {
    /// Returns the algorithm that a client prefers for `Repr-Digest` (RFC 9530 §4), or nil if no supported algorithm is
    /// acceptable.
    ///
    /// Preferences are Integers from 0 (not acceptable) to 10 (most preferred). Malformed entries are ignored.
    package static func wanted(in fields: HTTPFields) -> DigestAlgorithm? {
        // An unreadable field counts as missing.
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
    /// `Want-Repr-Digest`, a Dictionary of Integers from 0 to 10: preferences for algorithms (RFC 9530 §4).
    package static let wantReprDigest = HTTPField.Name.made("Want-Repr-Digest")
}
