// Compares a download with the digest from the server (RFC 9530).
//
// The invariant: the computed digest covers all received bytes.

import HTTPTypes
import SpoolgateCrypto
import SpoolgateUploadProtocol

struct DownloadDigest: Equatable {
    private let values: DigestValues

    /// The value of `Want-Repr-Digest`.
    static let wanted = "sha-256=10, sha-512=9"
    /// The reason for a missing digest, as a part of a sentence.
    static let absence =
        "the server sends no Repr-Digest with sha-256 or sha-512"

    /// Reads `Repr-Digest`; nil if it contains no supported digest.
    init?(_ fields: HTTPFields) {
        // `try?`: an invalid field counts as missing.
        guard let values = try? DigestValues(.reprDigest, in: fields), !values.isEmpty else {
            return nil
        }
        self.values = values
    }

    init?(value: String) { self.init([.reprDigest: value]) }

    var value: String { values.fieldValue }

    /// Returns whether both digests can belong to the same bytes.
    func agrees(with other: DownloadDigest) -> Bool {
        DigestAlgorithm.integrity.allSatisfy { algorithm in
            guard let own = values[algorithm], let others = other.values[algorithm] else {
                return true
            }
            return own == others
        }
    }

    func running() -> RunningDigests { RunningDigests(values.algorithms) }

    func isRight(_ computed: RunningDigests) -> Bool { values.agrees(with: computed.finish()) }
}

/// The digests of bytes that arrive piece by piece, on one thread.
final class RunningDigests {
    private let running: [(algorithm: DigestAlgorithm, digest: RunningDigest)]

    fileprivate init(_ algorithms: Set<DigestAlgorithm>) {
        running = algorithms.map { ($0, RunningDigest($0 == .sha512 ? .sha512 : .sha256)) }
    }

    func update(_ bytes: UnsafeRawBufferPointer) {
        for (_, digest) in running { digest.update(bytes) }
    }

    fileprivate func finish() -> DigestValues {
        var values = DigestValues()
        for (algorithm, digest) in running { values[algorithm] = digest.finish() }
        return values
    }
}
