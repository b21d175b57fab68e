// The refusals of the upload protocol; the gateway's own are in Refusal+Gateway.swift.
//
// Invariant: a detail states the fault and the remedy.

package import HTTPTypes

// MARK: Upload resources and appends

extension Refusal {
    /// 404: the upload does not exist here, or belongs to another client.
    package static let unknownUpload = Refusal(
        status: .notFound,
        code: "unknown-upload",
        title: "upload not found",
        detail: """
            This client has no upload at this URL: it never existed, was cancelled, has expired or could \
            not be delivered. Start a new upload.
            """
    )

    /// 410: the record of the upload has become unreadable (draft-12 §4.1.1: lost state).
    package static let uploadLost = Refusal(
        status: .gone,
        code: "upload-lost",
        title: "upload lost",
        detail: "The server has lost the state of this upload. Start a new upload."
    )

    package static let methodNotAllowed = Refusal(
        status: .methodNotAllowed,
        code: "method-not-allowed",
        title: "method not allowed on an upload resource",
        detail: """
            This is an upload resource. Use HEAD or GET to retrieve its offset, PATCH to append to it and \
            DELETE to cancel it.
            """,
        fields: [.allow: UploadResources.allowedMethods]
    )

    package static let statusMethodNotAllowed = Refusal(
        status: .methodNotAllowed,
        code: "method-not-allowed",
        title: "method not allowed on a status resource",
        detail: "This resource is the status of an upload. Use GET to retrieve it.",
        fields: [.allow: "HEAD, GET"],
        isOrdinary: true
    )

    /// 415: an append without the media type for parts of an upload (draft-12 §4.4).
    package static let wrongMediaType = Refusal(
        status: .unsupportedMediaType,
        code: "wrong-media-type",
        title: "wrong media type for an append",
        detail: "Send an append with Content-Type: \(UploadResources.partialMediaType).",
        fields: [.acceptPatch: UploadResources.partialMediaType]
    )

    package static let missingOffset = Refusal(
        status: .badRequest,
        code: "missing-offset",
        title: "append without an offset",
        detail:
            "Send an append with Upload-Offset, a non-negative integer. Use HEAD to retrieve the current offset."
    )

    /// 400: an append without a valid `Upload-Complete`, if the dialect requires it.
    package static let missingCompleteness = Refusal(
        status: .badRequest,
        code: "missing-completeness",
        title: "append without Upload-Complete",
        detail: """
            Send an append with Upload-Complete: ?1 if its content ends the upload, and with \
            Upload-Complete: ?0 if more follows.
            """
    )

    /// 400: a HEAD or DELETE request of versions 3 to 6 with a field that only appends have (draft-03 §5).
    package static func strayField(_ name: HTTPField.Name) -> Refusal {
        Refusal(
            status: .badRequest,
            code: "stray-field",
            title: "field not allowed in this request",
            detail: "Omit \(name.rawName): only creations and appends may have it."
        )
    }

    /// 400: an append in a different protocol from the upload's.
    ///
    /// Such an append could not complete the upload as the protocol of its creation intends.
    package static let otherFamily = Refusal(
        status: .badRequest,
        code: "other-protocol",
        title: "append with another protocol",
        detail: """
            This upload was created with another upload protocol. Continue with that protocol, or start a \
            new upload.
            """
    )

    /// 409: the append does not start at the end of the upload (draft-12 §4.4.2, §7.1).
    package static func offsetMismatch(expected: Int64, provided: Int64) -> Refusal {
        Refusal(
            status: .conflict,
            code: "offset-mismatch",
            type: "mismatching-upload-offset",
            title: "offset from request does not match offset of resource",
            detail: "The upload has \(expected) bytes. Continue at Upload-Offset: \(expected).",
            members: [
                Member(name: "expected-offset", value: expected),
                Member(name: "provided-offset", value: provided),
            ]
        )
    }

    /// 400: two messages or two fields disagree on the length (draft-12 §4.1.3).
    package static func lengthChanged(known: Int64, stated: Int64) -> Refusal {
        inconsistentLength(
            "The length of this upload is \(known) bytes, but this request states \(stated)."
        )
    }

    /// 400: the content exceeds the known length (draft-12 §4.4.2).
    package static func lengthExceeded(length: Int64) -> Refusal {
        inconsistentLength(
            "The length of this upload is \(length) bytes, but this content exceeds it."
        )
    }

    /// 400: the client stated that the upload is complete, but content is missing (draft-12 §4.1.3).
    package static func lengthNotReached(length: Int64, offset: Int64) -> Refusal {
        inconsistentLength(
            """
            The length of this upload is \(length) bytes, but only \(offset) were received. Send the rest \
            before Upload-Complete: ?1.
            """
        )
    }

    /// 400: the length is inconsistent; `detail` is the complete sentence (draft-12 §7.2).
    package static func inconsistentLength(_ detail: String) -> Refusal {
        Refusal(
            status: .badRequest,
            code: "inconsistent-length",
            type: "inconsistent-upload-length",
            title: "inconsistent length values for upload",
            detail: detail
        )
    }

    /// 400: an append to a complete upload does not say "complete".
    ///
    /// If `typed` is true, the refusal has the problem type of drafts 04 to 11.
    package static func alreadyComplete(typed: Bool) -> Refusal {
        Refusal(
            status: .badRequest,
            code: "already-complete",
            type: typed ? "completed-upload" : nil,
            title: "upload is already completed",
            detail: """
                The upload is complete and accepts no more content. To get the final response again, send \
                an empty append with Upload-Complete: ?1 at the final offset.
                """
        )
    }
}

// MARK: Parts of a representation

extension Refusal {
    /// 400: the request has only a part of a representation, but the whole is required (RFC 9110 §14.5).
    package static let partialContent = Refusal(
        status: .badRequest,
        code: "partial-content",
        title: "partial content",
        detail: """
            Content-Range marks this content as a part, but only complete content is accepted here. Send all of it, \
            without Content-Range.
            """
    )

    package static let partNotResumable = Refusal(
        status: .badRequest,
        code: "partial-content",
        title: "partial content",
        detail: """
            A resumable upload cannot have Content-Range. Omit the field: Upload-Offset gives the position of content.
            """
    )
}

// MARK: Limits

extension Refusal {
    /// 413: the representation exceeds the maximum size of the route (draft-12 §4.1.4).
    package static func tooLarge(maxSize: Int64) -> Refusal {
        Refusal(
            status: .contentTooLarge,
            code: "too-large",
            title: "upload too large",
            detail: "An upload may have at most \(maxSize) bytes.",
            reportsLimits: true
        )
    }

    /// 413: the content of one message exceeds `max-append-size` (draft-12 §4.1.4).
    package static func appendTooLarge(maxAppendSize: Int64) -> Refusal {
        Refusal(
            status: .contentTooLarge,
            code: "append-too-large",
            title: "request content too large",
            detail:
                "The content of one request may have at most \(maxAppendSize) bytes. Send smaller parts.",
            reportsLimits: true
        )
    }
}
