// Classifies tus requests.
//
// The operations are those of the draft, read from other fields. Malformed fields are not ignored, because tus requires
// 400.

package import HTTPTypes
import SpoolgateTextFormats

extension UploadRequest {
    /// Returns the effective method of a request.
    ///
    /// In tus, a client that cannot send a method such as PATCH sends a POST that names the method in a field.
    package static func method(of head: RequestHead, _ family: ProtocolFamily?)
        -> HTTPRequest.Method
    {
        guard family == .tus, head.method == .post, let named = head.fields[.methodOverride]
        else { return head.method }
        return [.patch, .head, .delete].first { $0.rawValue == named.uppercased() } ?? head.method
    }

    static func tus(
        _ head: RequestHead,
        _ match: UploadResources.Match,
        _ limits: UploadLimits
    ) throws(Refusal) -> UploadRequest {
        switch head.fields[.tusResumable] {
        case Tus.version: break
        case nil where head.method == .head || head.method == .get: break
        default: throw .tusVersion
        }
        switch (match, head.method) {
        case (.malformed, _): throw .unknownUpload
        case (.elsewhere(let match), let method): return try elsewhere(match, method)
        case (.status(let id), .get), (.status(let id), .head): return .status(id)
        case (.status, _): throw .statusMethodNotAllowed
        case (.resource(let id), .head), (.resource(let id), .get): return .offsetRetrieval(id)
        case (.resource(let id), .delete): return .cancellation(id)
        case (.resource(let id), .patch): return .append(id, try Append(tus: head, limits))
        case (.resource, _): throw .methodNotAllowed
        case (.none, .post): return try creation(head, limits)
        case (.none, .patch), (.none, .head), (.none, .delete): throw .unknownUpload
        case (.none, _): return try unclaimed(head, limits)
        }
    }

    private static func creation(
        _ head: RequestHead,
        _ limits: UploadLimits
    ) throws(Refusal) -> UploadRequest {
        if head.fields.contentRange != nil { throw .partNotResumable }
        if let fault = head.fields[.uploadMetadata].flatMap(UploadMetadata.fault) {
            throw .malformedMetadata(fault)
        }
        let concat = head.fields[.uploadConcat]
        switch concat.map(UploadConcat.init) {
        case .final(let urls)??: return try concatenation(urls, head)
        case .some(nil): throw .malformedConcat
        case .partial??, nil: break
        }
        let length = try head.fields.tusLength(limits)
        switch head.fields[.uploadDeferLength] {
        case nil where length == nil: throw .noTusLength
        case nil: break
        case "1" where length == nil: break
        default: throw .noTusLength
        }
        if let refusal = limits.refusal(ofSize: length) { throw refusal }
        if let refusal = refusal(ofContent: head, length: length, limits) { throw refusal }
        let mustBeEmpty = head.contentLength == .known(0) || !head.isOfTusContent
        // A checksum applies only to content.
        if !mustBeEmpty { try head.fields.checkChecksum() }
        return .creation(
            Creation(
                completeness: .atLength,
                length: length,
                mustBeEmpty: mustBeEmpty && head.contentLength == .unknown
            )
        )
    }

    private static func concatenation(
        _ urls: [String],
        _ head: RequestHead
    ) throws(Refusal) -> UploadRequest {
        let hasLength = [HTTPField.Name.uploadLength, .uploadDeferLength].contains {
            head.fields[$0] != nil
        }
        if hasLength { throw .finalHasLength }
        if let count = head.contentLength.count, count > 0 { throw .finalNotAppended }
        return .concatenation(urls)
    }

    /// Returns the refusal of a creation with this content, or nil if the content is allowed.
    private static func refusal(
        ofContent head: RequestHead,
        length: Int64?,
        _ limits: UploadLimits
    ) -> Refusal? {
        guard head.contentLength != .known(0) else { return nil }
        // If the length is unknown, there may be no content.
        guard head.contentLength == .unknown || head.isOfTusContent else { return .tusMediaType }
        guard let count = head.contentLength.count else { return nil }
        if let length, count > length {
            return .lengthExceeded(length: length).with(status: .contentTooLarge)
        }
        return limits.refusal(ofSize: count) ?? limits.refusal(ofContent: count)
    }
}

extension UploadRequest.Append {
    fileprivate init(tus head: RequestHead, _ limits: UploadLimits) throws(Refusal) {
        guard head.isOfTusContent else { throw .tusMediaType }
        guard let offset = try head.fields.tusNumber(.uploadOffset) else { throw .missingOffset }
        if head.contentLength != .known(0) { try head.fields.checkChecksum() }
        self.init(
            offset: offset,
            completeness: .atLength,
            length: try head.fields.tusLength(limits),
            contentLength: head.contentLength
        )
    }
}

extension RequestHead {
    fileprivate var isOfTusContent: Bool {
        fields[.contentType].map { MediaType.of($0, is: Tus.mediaType) } ?? false
    }
}

extension HTTPFields {
    /// Returns the length of the upload in bytes, or nil if it is not stated.
    ///
    /// - Throws: 413 for a number beyond any limit, 400 for any other invalid value.
    fileprivate func tusLength(_ limits: UploadLimits) throws(Refusal) -> Int64? {
        if let text = self[.uploadLength], text.utf8.count > 15, text.utf8.allSatisfy(\.isDigit) {
            throw limits.tooLarge
        }
        return try tusNumber(.uploadLength)
    }

    /// Returns the non-negative integer in a field, or nil if the field is missing.
    ///
    /// - Throws: 400 for any other value.
    fileprivate func tusNumber(_ name: HTTPField.Name) throws(Refusal) -> Int64? {
        guard let text = self[name] else { return nil }
        guard (1...15).contains(text.utf8.count), let number = Int64(text), number >= 0,
            text.utf8.first != UInt8(ascii: "+")
        else { throw .malformedNumber(name) }
        return number
    }

    fileprivate func checkChecksum() throws(Refusal) { _ = try DigestValues(checksumIn: self) }
}

extension DigestValues {
    /// Reads the digest in `Upload-Checksum`: `algorithm base64` (tus).
    ///
    /// - Throws: 400 for an unsupported algorithm or an invalid digest.
    package init(checksumIn fields: HTTPFields) throws(Refusal) {
        self.init()
        guard let text = fields[.uploadChecksum] else { return }
        let words = text.utf8.split(separator: UInt8(ascii: " ")).map { Substring($0) }
        guard words.count == 2 else { throw .malformedChecksum("it does not have two parts") }
        let algorithm = Tus.checksumAlgorithms.first { $0.tusName == words[0] }
        guard let algorithm else {
            throw .malformedChecksum("'\(words[0].prefix(40))' is not supported")
        }
        guard let bytes = Base64.decode(words[1]) else {
            throw .malformedChecksum("the digest is not Base64 (it may be hexadecimal)")
        }
        guard bytes.count == algorithm.length else {
            throw .malformedChecksum(
                "the digest has \(bytes.count) bytes, but \(algorithm.tusName) has \(algorithm.length)"
            )
        }
        self[algorithm] = bytes
    }
}
