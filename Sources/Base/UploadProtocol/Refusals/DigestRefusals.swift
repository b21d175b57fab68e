// The refusals that concern digests, one entry each: status, problem type, title, detail.
//
// No decisions are made here. The problem types are those of draft-ietf-httpapi-digest-fields-problem-types-06 §3.

package import HTTPTypes

extension Refusal {
    /// 400: an integrity field cannot be verified; `reason` is a clause without bytes of the request.
    package static func invalidDigest(_ name: HTTPField.Name, _ reason: String) -> Refusal {
        Refusal(
            status: .badRequest,
            code: "invalid-digest",
            type: "digest-invalid-values",
            title: "Invalid Digest Values",
            detail: "\(name.rawName) cannot be verified: \(reason). Correct it, or leave it out."
        )
    }

    /// 400: the content of one message does not match its `Content-Digest`; the content was discarded.
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

    /// 400: the representation does not match a `Repr-Digest`; the upload was removed without delivery.
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
