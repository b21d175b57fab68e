// The credentials of an attempt, and the credentials that the upstream or the authorizer has refused.
//
// The record keeps digests only. Invariant: refused credentials are sent again only after an operator's requeue.

import HTTPTypes
import SpoolgateCrypto
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import SpoolgateUpstream

struct RefusedCredentials {
    /// A guess waits longer after each refusal, so this is more than a client can try.
    private static let maximum = 200
    /// The maximum size in bytes of the stored challenges.
    private static let maximumChallenges = 2048

    private(set) var digests: [String] = []
    /// The values of `WWW-Authenticate` in the last refusal.
    private(set) var challenges: [String] = []

    var isEmpty: Bool { digests.isEmpty }

    /// Reads the stored fields of an upload.
    init(_ stored: HTTPFields?) {
        guard let stored, let text = stored[.refusedCredentials] else { return }
        digests = text.split(separator: ", ").map(String.init)
        challenges = stored[values: .wwwAuthenticate]
    }

    /// The fields to store.
    var fields: HTTPFields {
        guard !isEmpty else { return [:] }
        return [.refusedCredentials: digests.joined(separator: ", ")]
            + HTTPFields(challenges.map { HTTPField(name: .wwwAuthenticate, value: $0) })
    }

    mutating func add(_ digest: String, challenges: [String]) {
        if !digests.contains(digest) { digests.append(digest) }
        digests.removeFirst(max(0, digests.count - Self.maximum))
        let size = challenges.reduce(0) { $0 + $1.utf8.count }
        self.challenges = size <= Self.maximumChallenges ? challenges : []
    }
}

extension Delivery {
    /// The fields of the completing request with the credentials of the next attempt.
    ///
    /// `own` are the fields of the request that causes the attempt; nil for the queue. If its credentials do not
    /// replace the creation's, those in `stored` do, the stored fields of an earlier request.
    func completing(_ own: HTTPFields?, _ stored: HTTPFields?, of upload: Upload) -> HTTPFields? {
        guard let stored, let own else { return own ?? stored }
        return UpstreamFields.merged(
            own,
            with: stored,
            of: upload.creation.head,
            policy: route.settings.fields
        )
    }

    /// Returns the digest of the client's credentials in the next attempt; nil if it has none.
    private func digest(of upload: Upload, completing: HTTPFields?) -> String? {
        let credentials = UpstreamFields.clientCredentials(
            of: upload.creation.head,
            completing: completing,
            policy: route.settings.fields
        )
        guard !credentials.isEmpty else { return nil }
        // The order and the case of names mean nothing.
        var lines = credentials.map { field in
            Array("\(field.name.canonicalName): ".utf8) + field.withUnsafeBytesOfValue { Array($0) }
        }
        lines.sort { $0.lexicographicallyPrecedes($1) }
        // The identity makes equal credentials of two uploads look different.
        let text = Array("\(upload.creation.id)".utf8) + lines.flatMap { $0 + [UInt8(ascii: "\n")] }
        return Hexadecimal.text(Array(SHA256.digest(text.span.bytes).prefix(16)))
    }

    /// Whether the next attempt would have only credentials that were refused.
    func areRefused(
        _ completing: HTTPFields?,
        _ refused: RefusedCredentials,
        of upload: Upload
    ) -> Bool {
        guard !refused.isEmpty else { return false }
        guard let digest = digest(of: upload, completing: completing) else { return true }
        return refused.digests.contains(digest)
    }

    /// Stores that the credentials of the last attempt were refused.
    func noteRefused(
        _ upload: Upload,
        _ completing: HTTPFields?,
        challenges: [String]
    ) throws(SpoolError) {
        guard let digest = digest(of: upload, completing: completing) else { return }
        let stored = try upload.completion() ?? [:]
        var refused = RefusedCredentials(stored)
        refused.add(digest, challenges: challenges)
        let names = route.settings.fields.credentialFields
        try upload.keepCompletion(stored.filter { names.contains($0.name) } + refused.fields)
    }
}
