// The digests to compute for one upload: to verify the client's, and to send to the upstream and the client.
//
// Invariant: only requested digests are computed, and no upload is delivered that contradicts a client's digest.

package import HTTPTypes
import SpoolgateCrypto
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateTextFormats
package import SpoolgateUploadProtocol

/// The computed digests of one upload, and the plan that they follow.
package struct UploadDigests {
    let plan: DigestPlan
    let values: DigestValues

    /// The digests in hexadecimal, with the names of their algorithms.
    func texts(
        _ isIncluded: (DigestAlgorithm) -> Bool = { _ in true }
    ) -> [(key: String, value: String)] {
        DigestAlgorithm.integrity.filter(isIncluded).compactMap { algorithm in
            values[algorithm].map { (algorithm.rawValue, Hexadecimal.text($0)) }
        }
    }
}

/// The digests to compute for one upload.
package struct DigestPlan {
    /// The values of `Repr-Digest` in the creation and in the completing request.
    private var representations: [DigestValues] = []
    /// The values of `Content-Digest`; empty unless one message contains the whole upload.
    private var content = DigestValues()
    /// The algorithm of the digest that the client asked for in the final response; nil if none.
    private var wanted: DigestAlgorithm?
    private(set) var reported: Set<DigestAlgorithm> = []

    /// Creates the plan for an upload that has an upload resource.
    ///
    /// `reported` contains the algorithms for the upstream. `completing` is nil if the creation completed the upload, or
    /// the completing request's fields are unknown.
    init(creation: HTTPFields, completing: HTTPFields?, reported: Set<DigestAlgorithm>) {
        // The digest of a whole representation cannot be computed from a part (RFC 9110 §14.5).
        guard creation.contentRange == nil else { return }
        wanted = DigestAlgorithm.wanted(in: creation)
        // `try?`: a digest that cannot be verified was refused with its request.
        representations = [creation, completing ?? [:]].compactMap {
            try? DigestValues(.reprDigest, in: $0)
        }
        self.reported = reported
    }

    /// Creates the plan of an ordinary upload.
    ///
    /// - Throws: `Refusal.invalidDigest` if a digest field is invalid.
    package init(ordinary fields: HTTPFields, route: Route) throws(Refusal) {
        content = try DigestValues(.contentDigest, in: fields)
        guard fields.contentRange == nil else { return }
        let representation = try DigestValues(.reprDigest, in: fields)
        if !representation.isEmpty { representations = [representation] }
        // The client's `Want-Repr-Digest` is for the upstream's own representation (RFC 9530 §4).
        reported = route.reportedDigests
    }

    package var algorithms: Set<DigestAlgorithm> {
        representations.reduce(content.algorithms) { $0.union($1.algorithms) }
            .union(reported).union(wanted.map { [$0] } ?? [])
    }

    /// Compares the computed digests, one for each of `algorithms`, with those that the client sent.
    ///
    /// Returns the upload's digests, or the refusal to send if they contradict the client's.
    package func checked(_ computed: DigestValues) -> Result<UploadDigests, Refusal> {
        guard content.agrees(with: computed) else { return .failure(.contentDigestMismatch) }
        guard representations.allSatisfy({ $0.agrees(with: computed) }) else {
            return .failure(.reprDigestMismatch)
        }
        return .success(UploadDigests(plan: self, values: computed))
    }

    /// Adds `Repr-Digest` to the final response if the client asked for the field and the upstream sent none.
    func add(_ computed: DigestValues, in response: inout ResponseHead) {
        guard let value = wanted.flatMap(computed.fieldValue),
            !response.fields.contains(.reprDigest)
        else { return }
        response.fields[.reprDigest] = value
    }

    /// Checks digest fields before the content is read.
    ///
    /// Returns nil if the fields are valid.
    package static func refusal(of fields: HTTPFields) -> Refusal? {
        Result { () throws(Refusal) in
            _ = try DigestValues(.reprDigest, in: fields)
            _ = try DigestValues(.contentDigest, in: fields)
        }.failure
    }
}

extension Route {
    var reportedDigests: Set<DigestAlgorithm> {
        var reported: Set<DigestAlgorithm> = []
        if let digest = settings.digest { reported.insert(digest) }
        if settings.form == .path { reported.insert(.sha256) }
        return reported
    }
}

/// Computes digests of content that arrives in parts.
///
/// Not thread-safe.
package final class DigestReading {
    private let running: [(algorithm: DigestAlgorithm, digest: RunningDigest)]

    /// Starts the computation.
    ///
    /// If `algorithms` is empty, nothing is computed.
    package init(_ algorithms: Set<DigestAlgorithm>) {
        running = algorithms.map { ($0, RunningDigest($0.function)) }
    }

    /// Adds the next bytes of the content.
    package func update(_ bytes: RawSpan) {
        for one in running { one.digest.update(bytes) }
    }

    /// Returns the digests of all added bytes.
    ///
    /// Call `finish` only once.
    package func finish() -> DigestValues {
        var values = DigestValues()
        for one in running { values[one.algorithm] = one.digest.finish() }
        return values
    }

    /// Computes the digests of readable content in one pass.
    ///
    /// If `algorithms` is empty, nothing is read. `read` must fill a buffer with content from a position on, and may
    /// return fewer bytes only at the end of the content. `onProgress` is called after each buffer of content, for
    /// heartbeats to the client.
    ///
    /// - Returns: one digest for each algorithm; nil if the content ends before `length` bytes.
    /// - Throws: the errors of `read`.
    package static func values<Failure: Error>(
        _ algorithms: Set<DigestAlgorithm>,
        length: Int64,
        read: (UnsafeMutableRawBufferPointer, Int64) throws(Failure) -> Int,
        onProgress: () -> Void = {}
    ) throws(Failure) -> DigestValues? {
        let reading = DigestReading(algorithms)
        guard !algorithms.isEmpty else { return reading.finish() }
        let size = Int(min(Int64(partSize), max(length, 1)))
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: size, alignment: 4096)
        defer { buffer.deallocate() }
        var position: Int64 = 0
        while position < length {
            let part = Int(min(Int64(size), length - position))
            let count = try read(UnsafeMutableRawBufferPointer(rebasing: buffer[..<part]), position)
            guard count > 0 else { return nil }
            for one in reading.running {
                one.digest.update(UnsafeRawBufferPointer(rebasing: buffer[..<count]))
            }
            position += Int64(count)
            if position < length { onProgress() }
        }
        return reading.finish()
    }

    private static let partSize = 1 << 20
}

extension DigestAlgorithm {
    fileprivate var function: DigestFunction {
        switch self {
        case .sha1: .sha1
        case .sha256: .sha256
        case .sha512: .sha512
        }
    }
}
