// The refusals that concern digests.
//
// The problem types are those of draft-ietf-httpapi-digest-fields-problem-types-06 §3.

package import HTTPTypes

extension Refusal {
    /// 400: an integrity field is invalid; `reason` is a clause without bytes of the request.
    package static func invalidDigest(_ name: HTTPField.Name, _ reason: String) -> Refusal {
        Refusal(
            status: .badRequest,
            code: "invalid-digest",
            type: "digest-invalid-values",
            title: "Invalid Digest Values",
            detail: "\(name.rawName) cannot be verified: \(reason). Correct the field or omit it."
        )
    }

    package static let contentDigestMismatch = Refusal(
        status: .badRequest,
        code: "content-digest-mismatch",
        type: "digest-mismatched-values",
        title: "Mismatched Digest Values",
        detail: """
            The received content does not match Content-Digest and was discarded. Send it again.
            """
    )

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
