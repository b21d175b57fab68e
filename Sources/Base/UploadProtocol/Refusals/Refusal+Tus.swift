// The refusals that only tus clients receive.

import HTTPTypes

extension Refusal {
    package static let tusVersion = Refusal(
        status: .preconditionFailed,
        code: "tus-version",
        title: "unsupported tus version",
        detail: "Send Tus-Resumable: \(Tus.version), the only supported version.",
        fields: [.tusVersion: Tus.version]
    )

    static let tusMediaType = Refusal(
        status: .unsupportedMediaType,
        code: "wrong-media-type",
        title: "wrong media type for upload content",
        detail: "Send content with Content-Type: \(Tus.mediaType).",
        fields: [.acceptPatch: Tus.mediaType]
    )

    /// 400: a creation has neither or both of the length fields, or a malformed one.
    static let noTusLength = Refusal(
        status: .badRequest,
        code: "missing-length",
        title: "creation without a length",
        detail: "Send either Upload-Length, in bytes, or Upload-Defer-Length: 1."
    )

    private static func malformedField(_ detail: String) -> Refusal {
        Refusal(
            status: .badRequest,
            code: "malformed-field",
            title: "malformed field",
            detail: detail
        )
    }

    static func malformedNumber(_ name: HTTPField.Name) -> Refusal {
        malformedField(
            "\(name.rawName) must be a single non-negative integer of at most 15 digits."
        )
    }

    /// 400: `Upload-Metadata` is malformed; `fault` is a clause that names the pair and its fault.
    static func malformedMetadata(_ fault: String) -> Refusal {
        malformedField(
            """
            Upload-Metadata must be a comma-separated list of unique keys, each followed by its value in \
            Base64: \(fault).
            """
        )
    }

    /// 410: a termination of an upload that was already delivered.
    ///
    /// The status is not 409, because tus clients retry after 409.
    static let alreadyDelivered = Refusal(
        status: .gone,
        code: "already-delivered",
        title: "upload already delivered",
        detail:
            "The upload was delivered before it could be cancelled. Remove it at its destination.",
        completeness: .complete
    )

    /// 409: a part of the upload is on another node.
    ///
    /// If all parts are on that node, the web server should have sent this request to that node, too.
    package static let partElsewhere = Refusal(
        status: .conflict,
        code: "part-on-other-node",
        title: "part on another node",
        detail: "A part is stored on another node of this service. Send all content as one upload."
    )

    package static let malformedConcat = malformedField(
        "Upload-Concat must be \"partial\", or \"final;\" followed by the URLs of the parts."
    )

    /// 400: the URL of a part is not an upload of this service, or is listed twice.
    ///
    /// The detail contains the first 200 characters of `url`.
    package static func noPart(_ url: String) -> Refusal {
        malformedField(
            """
            Upload-Concat must list each part once, by the URL from its creation response: \
            \(url.prefix(200)) is not such a URL.
            """
        )
    }

    static let finalHasLength = Refusal(
        status: .badRequest,
        code: "malformed-field",
        title: "length of an upload made of parts",
        detail:
            "The parts determine the length of this upload. Omit Upload-Length and Upload-Defer-Length."
    )

    static let finalNotAppended = Refusal(
        status: .forbidden,
        code: "final-upload",
        title: "content for an upload made of parts",
        detail: "This upload is made of parts and accepts no other content."
    )

    package static let partUnfinished = Refusal(
        status: .badRequest,
        code: "part-unfinished",
        title: "part is incomplete or not a partial upload",
        detail: """
            Each URL in Upload-Concat must be of a complete upload that was created with Upload-Concat: partial. \
            Complete the parts first.
            """
    )

    package static let partConsumed = Refusal(
        status: .gone,
        code: "part-consumed",
        title: "part already used by another upload",
        detail: """
            A part in Upload-Concat belongs to an upload that was made of other parts, or of the same parts in \
            another order. Upload the part again.
            """
    )

    /// 400: `Upload-Checksum` cannot be verified; `fault` is a clause that names the reason.
    static func malformedChecksum(_ fault: String) -> Refusal {
        malformedField(
            """
            Upload-Checksum must be one of \
            \(Tus.checksumAlgorithms.map(\.tusName).joined(separator: ", ")), a space, and the digest \
            in Base64: \(fault).
            """
        )
    }

    /// 460: the content does not match its checksum (tus, "checksum").
    package static let checksumMismatch = Refusal(
        status: HTTPResponse.Status(code: 460, reasonPhrase: "Checksum Mismatch"),
        code: "checksum-mismatch",
        title: "content does not match its checksum",
        detail: "The content does not match its Upload-Checksum and was discarded. Send it again."
    )
}
