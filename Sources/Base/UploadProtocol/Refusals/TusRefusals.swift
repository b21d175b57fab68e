// The errors that only tus clients get, one entry each.
//
// Invariant: a detail says what was wrong with this request and what the client can do about it.

import HTTPTypes

extension Refusal {
    /// 412: the request is of no version of tus that is spoken here.
    package static let tusVersion = Refusal(
        status: .preconditionFailed,
        code: "tus-version",
        title: "no such version of tus",
        detail: "Send Tus-Resumable: \(Tus.version), the only version that is spoken here.",
        fields: [.tusVersion: Tus.version]
    )

    /// 415: content that is no part of an upload.
    static let tusMediaType = Refusal(
        status: .unsupportedMediaType,
        code: "wrong-media-type",
        title: "wrong media type for content of an upload",
        detail: "Send content with Content-Type: \(Tus.mediaType).",
        fields: [.acceptPatch: Tus.mediaType]
    )

    /// 400: neither or both of the fields that tell a length, or a malformed one.
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

    /// 400: a field whose value is no number.
    static func malformedNumber(_ name: HTTPField.Name) -> Refusal {
        malformedField("\(name.rawName) must be one non-negative integer of at most 15 digits.")
    }

    /// 400: `Upload-Metadata` that cannot be read.
    ///
    /// - Parameter fault: what is wrong with which pair, as a clause.
    /// - Returns: a refusal that tells the client both.
    static func malformedMetadata(_ fault: String) -> Refusal {
        malformedField(
            """
            Upload-Metadata must be pairs of a key and its value in Base64, separated by commas, each \
            key once: \(fault).
            """
        )
    }

    /// 410: a termination of an upload that the upstream has.
    ///
    /// Not 409, after which clients of tus try again.
    static let alreadyDelivered = Refusal(
        status: .gone,
        code: "already-delivered",
        title: "upload already delivered",
        detail: "The upload was delivered before it could be cancelled. Remove it where it went.",
        completeness: .complete
    )

    /// 409: a part that another node has; where all of them are there, the web server should have sent this too.
    package static let partElsewhere = Refusal(
        status: .conflict,
        code: "part-on-other-node",
        title: "part of another node",
        detail: "Another node of this service has one of these parts. Send the whole as one upload."
    )

    /// 400: `Upload-Concat` that cannot be read.
    package static let malformedConcat = malformedField(
        "Upload-Concat must be partial, or final; and the URLs of the parts."
    )

    /// 400: a part whose URL names no upload of this service, or that stands there twice.
    ///
    /// - Parameter url: the URL as the client sent it; its first 200 characters are told.
    /// - Returns: a refusal that names the part.
    package static func noPart(_ url: String) -> Refusal {
        malformedField(
            """
            Upload-Concat must name each part once, by the URL that its creation told: \
            \(url.prefix(200)) is not such a URL.
            """
        )
    }

    /// 400: an upload made of parts has their length.
    static let finalHasLength = Refusal(
        status: .badRequest,
        code: "malformed-field",
        title: "a length beside parts",
        detail:
            "An upload made of parts has their length. Leave Upload-Length and Upload-Defer-Length out."
    )

    /// 403: an upload made of parts takes no other content.
    static let finalNotAppended = Refusal(
        status: .forbidden,
        code: "final-upload",
        title: "content for an upload made of parts",
        detail: "This upload is made of parts and takes no other content."
    )

    /// 400: an upload cannot be made of this part yet, or never.
    package static let partUnfinished = Refusal(
        status: .badRequest,
        code: "part-unfinished",
        title: "a part is not whole, or no part",
        detail: """
            Each URL in Upload-Concat must be of an upload that was created with Upload-Concat: partial and \
            is whole. Finish the parts first.
            """
    )

    /// 410: a part went into another upload.
    package static let partConsumed = Refusal(
        status: .gone,
        code: "part-consumed",
        title: "a part is in another upload",
        detail: """
            A part in Upload-Concat went into an upload that was made of other parts, or in another order. \
            Upload it again.
            """
    )

    /// 400: `Upload-Checksum` that cannot be verified.
    ///
    /// - Parameter fault: what is wrong with it, as a clause.
    /// - Returns: a refusal that tells the client both.
    static func malformedChecksum(_ fault: String) -> Refusal {
        malformedField(
            """
            Upload-Checksum must be one of \
            \(Tus.checksumAlgorithms.map(\.tusName).joined(separator: ", ")), a space, and the digest \
            in Base64: \(fault).
            """
        )
    }

    /// 460: the content is not what its checksum says (tus, "checksum").
    package static let checksumMismatch = Refusal(
        status: HTTPResponse.Status(code: 460, reasonPhrase: "Checksum Mismatch"),
        code: "checksum-mismatch",
        title: "content does not match its checksum",
        detail: "The content does not match its Upload-Checksum and was discarded. Send it again."
    )
}
