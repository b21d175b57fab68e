// The bucket upstream: a store that speaks S3 and receives each upload as one object.
//
// A large upload is sent in parts (MultipartUpload.swift). `If-None-Match: *` prevents overwriting: if an earlier
// attempt of unknown outcome stored the object, the next attempt receives 412, and the gateway checks the existing
// object. Invariant: an upload counts as stored only if the store confirmed it, or has an object with the upload's
// identity and length under its key.

import HTTPTypes
import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// Stores uploads in one bucket.
///
/// Thread-safe; keeps its connections open and reuses them.
final class Bucket: UpstreamAccess {
    let address: BucketAddress
    let settings: BucketSettings
    private let location: UpstreamLocation
    private let targets: HTTPTargets

    init(_ address: BucketAddress, _ settings: UpstreamSettings) {
        self.address = address
        self.settings = settings.bucket
        location = UpstreamLocation(base: address.origin(settings.bucket.style))
        targets = HTTPTargets([location], settings) { _ in }
    }

    /// Stores an upload.
    ///
    /// The sink receives 201 after the store has confirmed the upload, or 405 if the request is not an upload.
    func attempt(_ request: UpstreamRequest, sink: any ResponseSink) -> AttemptOutcome {
        let purpose = request.purpose(at: address.shortText)
        guard let upload = request.upload else {
            return Response.onlyUploads.give(to: sink, respondingTo: request, purpose: purpose)
        }
        let object = BucketObject(upload, request, at: address, settings)
        do throws(NotStored) {
            let key: AccessKey
            do throws(AccessKeyFault) { key = try settings.accessKey } catch {
                throw NotStored(outcome: .deferred(reason: "\(purpose): \(error.reason)"))
            }
            let requests = BucketRequests(
                object: object,
                purpose: purpose,
                bucket: self,
                key: key,
                via: request.fields.filter { $0.name == .via },
                onProgress: sink.onProgress
            )
            if object.length <= settings.partSize {
                try requests.put(request.content)
            } else {
                try MultipartUpload(requests, request.content).store()
            }
        } catch {
            return error.outcome
        }
        return Response.stored(upload, name: object.name, length: object.length)
            .give(to: sink, respondingTo: request, purpose: purpose)
    }

    /// Signs and sends a request, with `unsigned` fields that are added to it.
    fileprivate func send(
        _ request: UpstreamRequest,
        signedAs content: SignedContent,
        by key: AccessKey,
        unsigned: [HTTPField] = [],
        to sink: any ResponseSink
    ) -> AttemptOutcome {
        var request = request
        RequestSignature(key: key, region: settings.region, time: .now)
            .sign(&request, host: location.authority, content)
        request.fields.append(contentsOf: unsigned)
        return targets.attempt(request, sink: sink)
    }

    fileprivate var isSecure: Bool { location.isSecure }
}

extension BucketAddress {
    /// The server's URL; in virtual-host style, the host begins with the bucket's name.
    func origin(_ style: BucketStyle) -> String {
        guard style == .virtualHost, let start = endpoint.firstRange(of: "://")?.upperBound else {
            return endpoint
        }
        return "\(endpoint[..<start])\(name).\(endpoint[start...])"
    }

    func root(_ style: BucketStyle) -> String {
        style == .virtualHost ? "/" : "/\(PercentText.encode(name))"
    }

    /// Sends the store a signed request to list objects, and returns the error that would prevent uploads.
    ///
    /// The key need not permit listing, because a store that denies only the listing has verified the signature.
    ///
    /// - Returns: one sentence that ends with the fix; nil if no error was found.
    package func fault(_ settings: UpstreamSettings) -> String? {
        let key: AccessKey
        do throws(AccessKeyFault) { key = try settings.bucket.accessKey } catch {
            return error.reason
        }
        let response = BucketResponse {}
        let target = "\(root(settings.bucket.style))?list-type=2&max-keys=1"
        let request = UpstreamRequest(method: .get, target: target, fields: [:])
        let outcome = Bucket(self, settings).send(request, signedAs: .none, by: key, to: response)
        guard outcome == .responded else { return outcome.reason }
        if response.isDone || response.error == "AccessDenied" { return nil }
        return response.refusal(name).outcome.reason
    }
}

/// The requests that one attempt sends for one object; not thread-safe.
struct BucketRequests {
    let object: BucketObject
    /// The attempted action, with which every reason begins.
    let purpose: String
    var pauses: [Duration] { bucket.settings.pauses }
    var partSize: Int64 { bucket.settings.partSize }
    fileprivate let bucket: Bucket
    fileprivate let key: AccessKey
    fileprivate let via: [HTTPField]
    fileprivate let onProgress: () -> Void

    /// The field that prevents overwriting an object (RFC 9110 §13.1.2).
    static let onlyNew: HTTPFields = [.ifNoneMatch: "*"]

    /// Sends one request and receives its response, regardless of the status.
    ///
    /// `query` must be in canonical form, including its `?`. `fields` are signed, but `unsigned` are not. `digest` is
    /// the content's SHA-256; nil if unknown.
    ///
    /// - Throws: `NotStored` if no complete response is received.
    func send(
        _ method: HTTPRequest.Method,
        query: String = "",
        _ fields: HTTPFields = [:],
        unsigned: [HTTPField] = [],
        content: UpstreamContent = .none,
        digest: [UInt8]? = nil
    ) throws(NotStored) -> BucketResponse {
        let response = BucketResponse(meanwhile: onProgress)
        let target = object.path + query
        let outcome = bucket.send(
            UpstreamRequest(method: method, target: target, fields: fields, content: content),
            signedAs: try signed(content, digest),
            by: key,
            // A proxy may append to `Via`.
            unsigned: unsigned + via,
            to: response
        )
        guard outcome == .responded else { throw NotStored(outcome: outcome) }
        return response
    }

    /// Decides whether the content is signed by its SHA-256 or not at all.
    ///
    /// TLS protects the content in transit, so it is not read an extra time for a digest. Without TLS, only the digest
    /// proves to the store that the content is unchanged.
    private func signed(
        _ content: UpstreamContent,
        _ digest: [UInt8]?
    ) throws(NotStored) -> SignedContent {
        if let digest { return .digest(digest) }
        if content.length == 0 { return .none }
        if bucket.isSecure { return .unsigned }
        do {
            return .digest(try content.digest(onProgress))
        } catch {
            throw NotStored(
                outcome: .abandoned(reason: "\(purpose): cannot read the content: \(error)")
            )
        }
    }

    /// Waits, and calls `onProgress` every second.
    func wait(_ pause: Duration) {
        let end = Deadline.after(pause)
        while !end.hasPassed {
            onProgress()
            Thread.pause(min(end.remaining, .seconds(1)))
        }
    }

    func put(_ content: UpstreamContent) throws(NotStored) {
        var fields = object.fields
        fields.append(contentsOf: Self.onlyNew)
        let response = try send(
            .put,
            fields,
            unsigned: object.unsigned,
            content: content,
            digest: object.digest
        )
        if response.status == 412 { return try requireThere() }
        guard response.isDone else { throw response.refusal(purpose) }
    }

    /// Whether the upload is already stored; also false if the access key does not permit reading the object.
    ///
    /// Stores show only complete objects.
    ///
    /// - Throws: `NotStored` if a different object has the upload's key.
    func isThere() throws(NotStored) -> Bool {
        let response = try send(.head)
        guard response.isDone else { return false }
        guard response.head?.fields[.amzMetaUpload] == "\(object.id)",
            response.contentLength == object.length
        else {
            let reason =
                "\(purpose): object \(object.path) exists and is not this upload; move it away"
            throw NotStored(outcome: .deferred(reason: reason))
        }
        return true
    }

    func requireThere() throws(NotStored) {
        guard try !isThere() else { return }
        let reason =
            "\(purpose): object \(object.path) exists and cannot be read; allow the key in s3.credentials to read "
            + "objects there (s3:GetObject)"
        throw NotStored(outcome: .deferred(reason: reason))
    }
}
