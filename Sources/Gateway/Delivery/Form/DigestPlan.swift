// What the digests of one upload are computed for: to verify what clients say, to tell the upstream, to
// tell the client.
//
// Invariant: nothing is computed that nobody asked for, and nothing is delivered that a client's digest
// contradicts.

package import HTTPTypes
import SpoolgateCrypto
import SpoolgateSettings
import SpoolgateTextFormats
package import SpoolgateUploadProtocol

/// The digests of one upload, computed, and whom they are for.
package struct UploadDigests {
    /// What they are for.
    let plan: DigestPlan
    /// One for each of `plan.algorithms`.
    let values: DigestValues

    /// All that are known, in hexadecimal, by the names of their algorithms.
    var texts: [(key: String, value: String)] {
        DigestAlgorithm.integrity.compactMap { algorithm in
            values[algorithm].map { (algorithm.rawValue, Hexadecimal.text($0)) }
        }
    }
}

/// The digests that one upload needs.
package struct DigestPlan {
    /// What `Repr-Digest` of the creation, and of the completing request, say; none if they say nothing.
    private var representations: [DigestValues] = []
    /// What `Content-Digest` says, where the one message is the whole upload.
    private var content = DigestValues()
    /// What the client wants to hear with the final response.
    private var wanted: DigestAlgorithm?
    /// What the upstream is told.
    private(set) var told: Set<DigestAlgorithm> = []

    /// The plan of an upload with a resource, at its delivery.
    ///
    /// - Parameters:
    ///   - creation: the creation's fields.
    ///   - completing: the fields of the request that completes it; nil if that is the creation, or
    ///     nobody.
    ///   - told: what the upstream is told.
    init(creation: HTTPFields, completing: HTTPFields?, told: Set<DigestAlgorithm>) {
        // Of a part of a representation nobody here has the whole (RFC 9110 §14.5).
        guard creation.contentRange == nil else { return }
        wanted = DigestAlgorithm.wanted(in: creation)
        // `try?`: what cannot be verified was refused with its request.
        representations = [creation, completing ?? [:]].compactMap {
            try? DigestValues(.reprDigest, in: $0)
        }
        self.told = told
    }

    /// The plan of an ordinary upload.
    ///
    /// - Throws: `Refusal.invalidDigest`.
    package init(ordinary fields: HTTPFields, route: Route) throws(Refusal) {
        content = try DigestValues(.contentDigest, in: fields)
        guard fields.contentRange == nil else { return }
        representations = [try DigestValues(.reprDigest, in: fields)]
        // What it wants is for the upstream's own representation (RFC 9530 §4).
        told = route.toldDigests
    }

    /// What has to be computed.
    package var algorithms: Set<DigestAlgorithm> {
        representations.reduce(content.algorithms) { $0.union($1.algorithms) }
            .union(told).union(wanted.map { [$0] } ?? [])
    }

    /// The digests of an upload, one for each of `algorithms`, or why it is not to be delivered.
    package func checked(_ computed: DigestValues) -> Result<UploadDigests, Refusal> {
        guard content.agrees(with: computed) else { return .failure(.contentDigestMismatch) }
        guard representations.allSatisfy({ $0.agrees(with: computed) }) else {
            return .failure(.reprDigestMismatch)
        }
        return .success(UploadDigests(plan: self, values: computed))
    }

    /// Adds `Repr-Digest` to the upstream's final response for a client that wants it and would not hear
    /// it otherwise.
    func tell(_ computed: DigestValues, in response: inout ResponseHead) {
        guard let wanted, let bytes = computed[wanted], !response.fields.contains(.reprDigest)
        else {
            return
        }
        var values = DigestValues()
        values[wanted] = bytes
        response.fields[.reprDigest] = values.fieldValue
    }

    /// Why the integrity fields of a request cannot be verified, found before its content is read; nil if
    /// they can.
    package static func refusal(of fields: HTTPFields) -> Refusal? {
        do throws(Refusal) {
            _ = try DigestValues(.reprDigest, in: fields)
            _ = try DigestValues(.contentDigest, in: fields)
            return nil
        } catch {
            return error
        }
    }
}

extension Route {
    /// The digests that the upstream is told of each upload.
    var toldDigests: Set<DigestAlgorithm> {
        Set([settings.digest, settings.form == .path ? .sha256 : nil].compactMap { $0 })
    }
}

/// The digests of content that passes by.
///
/// Used by one thread.
package final class DigestReading {
    private let running: [(algorithm: DigestAlgorithm, digest: RunningDigest)]

    /// Begins digests; with no algorithm it costs nothing.
    package init(_ algorithms: Set<DigestAlgorithm>) {
        running = algorithms.map { ($0, RunningDigest($0.function)) }
    }

    /// Adds the next part of the content.
    package func update(_ bytes: RawSpan) {
        for one in running { one.digest.update(bytes) }
    }

    /// The digests of the whole content; called once.
    package func finish() -> DigestValues {
        var values = DigestValues()
        for one in running { values[one.algorithm] = one.digest.finish() }
        return values
    }

    /// The digests of content that can be read, all in one pass.
    ///
    /// - Parameters:
    ///   - algorithms: which; without any nothing is read.
    ///   - length: bytes of content.
    ///   - read: fills a buffer from a position on, as `Upload.read` does; fewer bytes only at the end.
    ///   - onProgress: called between two parts, so that the client can be told that the wait goes on.
    /// - Returns: one digest for each algorithm; nil where the content ends before its length.
    /// - Throws: what `read` throws.
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
