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
            detail: "\(name.rawName) cannot be verified: \(reason). Correct the field or omit it."
        )
    }

    /// 400: the content of one message does not match its `Content-Digest`; the content was discarded.
    package static let contentDigestMismatch = Refusal(
        status: .badRequest,
        code: "content-digest-mismatch",
        type: "digest-mismatched-values",
        title: "Mismatched Digest Values",
        detail: """
            The received content does not match Content-Digest and was discarded. Send it again.
            """
    )

    /// 400: the representation does not match a `Repr-Digest`; the upload was removed without delivery.
    package static let reprDigestMismatch = Refusal(
        status: .badRequest,
        code: "repr-digest-mismatch",
        type: "digest-mismatched-values",
        title: "Mismatched Digest Values",
        detail: """
            The complete upload does not match Repr-Digest and was removed without delivery. Start a new \
            upload.
            """,
        completeness: .complete
    )
}
