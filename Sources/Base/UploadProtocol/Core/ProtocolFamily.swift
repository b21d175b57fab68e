// Detects the protocol of a request.
//
// The first matching rule applies. On an upload resource: a mark of the draft, then a mark of tus, then the protocol of
// the upload's creation. Elsewhere: a valid completeness field, even together with `Tus-Resumable`; then
// `Tus-Resumable`. `Upload-Length` or `Upload-Offset` alone is not a mark.

import HTTPTypes

/// The upload protocols.
package enum ProtocolFamily: Sendable, Equatable {
    /// "Resumable Uploads for HTTP", any interop version.
    case ietf
    case tus

    /// Detects the protocol of a request from its fields; nil if no field identifies a protocol.
    ///
    /// `isOnResource` is evaluated only if the request may be tus.
    package init?(of head: RequestHead, isOnResource: @autoclosure () -> Bool) {
        let marks = Marks(head.fields)
        // OPTIONS asks for general capabilities (RFC 9110), and tus ignores the version in such a request.
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

    private struct Marks {
        private(set) var isIETF = false
        private(set) var hasTusVersion = false
        private(set) var hasTusType = false

        init(_ fields: HTTPFields) {
            for field in fields {
                // Rules out most fields cheaply.
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

/// An upload's protocol and, in tus, whether it is a part of another upload or made of parts.
package struct UploadKind: Sendable, Equatable {
    package var family = ProtocolFamily.ietf
    /// Whether the upload is only a part of another upload and never delivered by itself (tus, "concatenation").
    package var isPart = false
    /// Whether the upload is concatenated from parts.
    package var isFinal = false

    /// Creates the kind of a plain upload of the draft.
    package init() {}

    /// Reads the kind from the head of a creation.
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
