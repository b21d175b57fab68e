// The upstream that is a bucket of a store that speaks S3: one upload becomes one object.
//
// Up to `part-size` by one PUT, beyond by parts (MultipartUpload.swift). Both say `If-None-Match: *`, so that
// nothing is ever overwritten. A repeat after an attempt of unknown outcome is told 412 by what that attempt
// has left; what is there is then looked at. The invariant: an upload counts as stored only where the store has
// answered so, or has an object with the upload's identity and length under its key.

import HTTPTypes
import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// Puts uploads into one bucket.
///
/// Any thread; connections are kept and reused.
final class Bucket: Sendable {
    let address: BucketAddress
    let settings: BucketSettings
    private let location: UpstreamLocation
    private let targets: HTTPTargets

    /// Connects to nothing yet.
    init(_ address: BucketAddress, _ settings: UpstreamSettings) {
        self.address = address
        self.settings = settings.bucket
        location = UpstreamLocation(base: address.origin(settings.bucket.style))
        // It is the only one: no other is reached in its place.
        targets = HTTPTargets([location], settings) { _ in }
    }

    /// Puts an upload there and answers 201 once the store has said that it has it; answers 405 to everything
    /// else.
    func attempt(_ request: UpstreamRequest, sink: any ResponseSink) -> AttemptOutcome {
        let purpose = request.purpose(at: "s3:\(address.endpoint)/\(address.name)")
        guard let upload = request.upload else {
            return Response.onlyUploads.give(to: sink, answering: request, purpose: purpose)
        }
        var object = BucketObject(upload, request, at: address, settings)
        do throws(NotStored) {
            let key: AccessKey
            do throws(AccessKeyFault) { key = try settings.accessKey } catch {
                throw NotStored(outcome: .putOff(reason: "\(purpose): \(error.reason)"))
            }
            func requests(for object: BucketObject) -> BucketRequests {
                BucketRequests(
                    object: object,
                    purpose: purpose,
                    bucket: self,
                    key: key,
                    via: request.fields.filter { $0.name == .via },
                    onProgress: sink.onProgress
                )
            }
            let former =
                request.isRepeated
                ? BucketObject(upload, request, at: address, settings, isFormer: true) : object
            if former.path != object.path, try requests(for: former).isThere() {
                object = former
            } else {
                try store(request.content, by: requests(for: object))
            }
        } catch {
            return error.outcome
        }
        return Response.stored(upload, name: object.name, length: object.length)
            .give(to: sink, answering: request, purpose: purpose)
    }

    private func store(
        _ content: UpstreamContent,
        by requests: BucketRequests
    ) throws(NotStored) {
        if requests.object.length <= settings.partSize {
            try requests.put(content)
        } else {
            try MultipartUpload(requests, content).store()
        }
    }

    /// Sends one request, signed with `key`.
    fileprivate func send(
        _ method: HTTPRequest.Method,
        _ target: String,
        _ fields: HTTPFields,
        _ content: UpstreamContent,
        signedAs signed: SignedContent,
        by key: AccessKey,
        unsigned: [HTTPField],
        to sink: any ResponseSink
    ) -> AttemptOutcome {
        let signature = RequestSignature(key: key, region: settings.region, time: .now)
        var signed = signature.signed(fields, method, target, host: location.authority, signed)
        signed.append(contentsOf: unsigned)
        return targets.attempt(
            UpstreamRequest(
                method: method,
                target: target,
                fields: signed,
                content: content
            ),
            sink: sink
        )
    }

    /// Whether nobody on the way can change what is sent.
    fileprivate var isSecure: Bool { location.isSecure }
}

extension BucketAddress {
    /// What is connected to: `https://host[:port]`, with the bucket's name before the host in virtual-host style.
    func origin(_ style: BucketStyle) -> String {
        guard style == .virtualHost, let start = endpoint.firstRange(of: "://")?.upperBound else {
            return endpoint
        }
        return "\(endpoint[..<start])\(name).\(endpoint[start...])"
    }

    /// The path of the bucket itself.
    func root(_ style: BucketStyle) -> String {
        style == .virtualHost ? "/" : "/\(PercentText.encode(name))"
    }

    /// Why no upload can be put there, as far as the store's answer to a signed request for a list tells; nil:
    /// nothing is against it.
    ///
    /// A key need not be allowed to list: a store that says so knows it, and its signature is right.
    ///
    /// - Parameter settings: those of the upstream that it is.
    /// - Returns: one sentence, which ends in what to do.
    package func fault(_ settings: UpstreamSettings) -> String? {
        let key: AccessKey
        do throws(AccessKeyFault) { key = try settings.bucket.accessKey } catch {
            return error.reason
        }
        let answer = BucketAnswer {}
        let outcome = Bucket(self, settings).send(
            .get,
            "\(root(settings.bucket.style))?list-type=2&max-keys=1",
            [:],
            .none,
            signedAs: .none,
            by: key,
            unsigned: [],
            to: answer
        )
        guard outcome == .answered else { return outcome.reason }
        if answer.isDone || answer.error == "AccessDenied" { return nil }
        return answer.refusal(name).outcome.reason
    }
}

/// The requests of one attempt, all about one object.
///
/// One thread.
struct BucketRequests {
    let object: BucketObject
    /// What is attempted, as the beginning of every reason.
    let purpose: String
    /// The pauses before a request is sent again.
    var pauses: [Duration] { bucket.settings.pauses }
    /// The size of a part.
    var partSize: Int64 { bucket.settings.partSize }
    fileprivate let bucket: Bucket
    fileprivate let key: AccessKey
    /// Which gateways the upload has passed.
    fileprivate let via: [HTTPField]
    fileprivate let onProgress: () -> Void

    /// Says that nothing is to be overwritten (RFC 9110 §13.1.2).
    static let onlyNew: HTTPFields = [.ifNoneMatch: "*"]

    /// Sends one request and takes its answer, whatever its status.
    ///
    /// - Parameters:
    ///   - method: the method.
    ///   - query: in canonical form, with its `?`; empty: none.
    ///   - fields: what it has beside what signs it.
    ///   - unsigned: what it has beside that, and its signature leaves out.
    ///   - content: its content.
    ///   - digest: the content's SHA-256, where it is known.
    /// - Returns: the whole answer.
    /// - Throws: why there is none.
    func send(
        _ method: HTTPRequest.Method,
        query: String = "",
        _ fields: HTTPFields = [:],
        unsigned: [HTTPField] = [],
        content: UpstreamContent = .none,
        digest: [UInt8]? = nil
    ) throws(NotStored) -> BucketAnswer {
        let answer = BucketAnswer(meanwhile: onProgress)
        let outcome = bucket.send(
            method,
            object.path + query,
            fields,
            content,
            signedAs: try signed(content, digest),
            by: key,
            // A proxy on the way adds to `Via`.
            unsigned: unsigned + via,
            to: answer
        )
        guard outcome == .answered else { throw NotStored(outcome: outcome) }
        return answer
    }

    /// What a request's content is signed as.
    ///
    /// Over TLS nobody can change it on the way, and content that would be read once more for its digest alone
    /// is not; without TLS only the digest tells the store that what arrived is what was signed.
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

    /// Lets time pass, in which the client is told that the wait goes on.
    func wait(_ pause: Duration) {
        let end = Deadline.after(pause)
        while !end.hasPassed {
            onProgress()
            _ = Monitor(()).wait(until: min(end, .after(.seconds(1)))) { _ in Void?.none }
        }
    }

    /// Puts the object there by one request.
    func put(_ content: UpstreamContent) throws(NotStored) {
        var fields = object.fields
        fields.append(contentsOf: Self.onlyNew)
        let answer = try send(
            .put,
            fields,
            unsigned: object.unsigned,
            content: content,
            digest: object.digest
        )
        if answer.status == 412 { return try requireThere() }
        guard answer.isDone else { throw answer.refusal(purpose) }
    }

    /// Whether the object is there already, whole; false also where nobody may look.
    ///
    /// Its identity is in its key and drawn for it alone, and a store shows no object before all of it is there.
    ///
    /// - Throws: where another object has its key.
    func isThere() throws(NotStored) -> Bool {
        let answer = try send(.head)
        guard answer.isDone else { return false }
        guard answer.head?.fields[.amzMetaUpload] == "\(object.id)",
            answer.contentLength == object.length
        else {
            let reason =
                "\(purpose): object \(object.path) exists and is not this upload; move it away"
            throw NotStored(outcome: .putOff(reason: reason))
        }
        return true
    }

    /// Accepts what has the object's key as the upload; throws where it is not, or nobody can tell.
    func requireThere() throws(NotStored) {
        guard try !isThere() else { return }
        let reason =
            "\(purpose): object \(object.path) exists and cannot be read; allow the key in s3.credentials to read "
            + "objects there (s3:GetObject)"
        throw NotStored(outcome: .putOff(reason: reason))
    }
}
