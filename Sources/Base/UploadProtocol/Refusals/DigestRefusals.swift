// The errors of digests, one entry each: status, problem type, title, detail.
//
// Nothing is decided here. The types are those of draft-ietf-httpapi-digest-fields-problem-types-06 §3.

package import HTTPTypes

extension Refusal {
    /// 400: an integrity field that cannot be verified; `reason` is a clause, without bytes of the
    /// request.
    package static func invalidDigest(_ name: HTTPField.Name, _ reason: String) -> Refusal {
        Refusal(
            status: .badRequest,
            code: "invalid-digest",
            type: "digest-invalid-values",
            title: "Invalid Digest Values",
            detail: "\(name.rawName) cannot be verified: \(reason). Correct it, or leave it out."
        )
    }

    /// 400: the content of one message is not what its `Content-Digest` says; nothing of it was kept.
    package static let contentDigestMismatch = Refusal(
        status: .badRequest,
        code: "content-digest-mismatch",
        type: "digest-mismatched-values",
        title: "Mismatched Digest Values",
        detail: """
            The content that arrived is not the content that Content-Digest describes. Nothing of \
            it was kept. Send it again.
            """
    )

    /// 400: the whole representation is not what a `Repr-Digest` says; it is gone and not delivered.
    package static let reprDigestMismatch = Refusal(
        status: .badRequest,
        code: "repr-digest-mismatch",
        type: "digest-mismatched-values",
        title: "Mismatched Digest Values",
        detail: """
            The whole upload is not the representation that Repr-Digest describes. It was not \
            delivered and is gone. Start a new upload.
            """,
        completeness: .complete
    )
}
