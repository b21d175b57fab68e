// What a download is to be, by the server's word, and what came of it (RFC 9530).
//
// The invariant: what is compared are the bytes that were taken, from the first on.

import HTTPTypes
import SpoolgateCrypto
import SpoolgateUploadProtocol

/// The digests of one representation.
struct DownloadDigest: Equatable {
    private let values: DigestValues

    /// What a request says that wants one.
    static let wanted = "sha-256=10, sha-512=9"
    /// Why there is nothing to compare with, as a part of a sentence.
    static let absence =
        "the server sends no Repr-Digest with sha-256 or sha-512"

    /// Reads `Repr-Digest`; nil where there is none that is known here.
    init?(_ fields: HTTPFields) {
        // `try?`: what cannot be read tells nothing.
        guard let values = try? DigestValues(.reprDigest, in: fields), !values.isEmpty else {
            return nil
        }
        self.values = values
    }

    /// Reads the field's value.
    init?(value: String) { self.init([.reprDigest: value]) }

    /// The field's value.
    var value: String { values.fieldValue }

    /// Whether both can be of the same bytes.
    func agrees(with other: DownloadDigest) -> Bool {
        DigestAlgorithm.integrity.allSatisfy { algorithm in
            guard let own = values[algorithm], let others = other.values[algorithm] else {
                return true
            }
            return own == others
        }
    }

    /// The computation that `isRight` wants.
    func running() -> RunningDigests { RunningDigests(values.algorithms) }

    /// Whether what was computed is what the server said.
    func isRight(_ computed: RunningDigests) -> Bool { values.agrees(with: computed.finish()) }
}

/// The digests of bytes that come part by part.
///
/// Used by one thread.
final class RunningDigests {
    private let running: [(algorithm: DigestAlgorithm, digest: RunningDigest)]

    fileprivate init(_ algorithms: Set<DigestAlgorithm>) {
        running = algorithms.map { ($0, RunningDigest($0 == .sha512 ? .sha512 : .sha256)) }
    }

    /// Adds the next bytes.
    func update(_ bytes: UnsafeRawBufferPointer) {
        for (_, digest) in running { digest.update(bytes) }
    }

    fileprivate func finish() -> DigestValues {
        var values = DigestValues()
        for (algorithm, digest) in running { values[algorithm] = digest.finish() }
        return values
    }
}
