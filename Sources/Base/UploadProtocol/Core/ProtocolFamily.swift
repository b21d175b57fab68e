// Whose request it is: one function tells the protocols apart.
//
// Rules, first match wins. On an upload resource: a mark of the draft, then one of tus, then whoever created the
// upload. Elsewhere: a valid completeness field, even beside `Tus-Resumable`; then `Tus-Resumable`. A lone
// `Upload-Length` or `Upload-Offset` means nothing.

import HTTPTypes

/// The protocols that clients speak.
package enum ProtocolFamily: Sendable, Equatable {
    /// "Resumable Uploads for HTTP", any interop version.
    case ietf
    /// tus 1.0.
    case tus

    /// Tells whose request it is; nil where nothing marks it: on an upload resource it is of the family that
    /// made the upload.
    ///
    /// - Parameters:
    ///   - head: the request's head.
    ///   - isOnResource: whether its target is an upload resource; asked only where tus may be spoken.
    package init?(of head: RequestHead, isOnResource: @autoclosure () -> Bool) {
        let marks = Marks(head.fields)
        // RFC 9110 lets anybody ask by OPTIONS what there is, and tus has its version ignored there.
        guard marks.hasTusVersion || marks.hasTusType, head.method != .options else {
            guard marks.isIETF else { return nil }
            self = .ietf
            return
        }
        if isOnResource() {
            self = marks.isIETF ? .ietf : .tus
        } else if UploadFields(head.fields, dialect: Dialect(of: head.fields)).completeness != nil {
            self = .ietf
        } else if marks.hasTusVersion {
            self = .tus
        } else {
            return nil
        }
    }

    /// The fields that mark a request.
    private struct Marks {
        private(set) var isIETF = false
        private(set) var hasTusVersion = false
        private(set) var hasTusType = false

        init(_ fields: HTTPFields) {
            for field in fields {
                // The first letter alone tells most fields of a request apart from these.
                switch field.name.canonicalName.utf8.first {
                case UInt8(ascii: "t"): if field.name == .tusResumable { hasTusVersion = true }
                case UInt8(ascii: "u"):
                    if field.name == .uploadDraftInteropVersion || field.name == .uploadComplete
                        || field.name == .uploadIncomplete
                    {
                        isIETF = true
                    }
                case UInt8(ascii: "c"):
                    guard field.name == .contentType else { continue }
                    if MediaType.of(field.value, is: UploadResources.partialMediaType) {
                        isIETF = true
                    } else if MediaType.of(field.value, is: Tus.mediaType) {
                        hasTusType = true
                    }
                default: break
                }
            }
        }
    }
}

/// How an upload came to be, as its creation's head says.
package struct UploadKind: Sendable, Equatable {
    /// Who speaks of it.
    package var family = ProtocolFamily.ietf
    /// Whether it is only a part of another upload, and never delivered by itself (tus, "concatenation").
    package var isPart = false
    /// Whether it is made of parts.
    package var isFinal = false

    /// Nothing but an upload of the draft.
    package init() {}

    /// Reads it from the head of a creation.
    package init(of creation: RequestHead) {
        guard ProtocolFamily(of: creation, isOnResource: false) == .tus else { return }
        family = .tus
        switch creation.fields[.uploadConcat].flatMap(UploadConcat.init) {
        case .partial: isPart = true
        case .final: isFinal = true
        case nil: break
        }
    }
}
