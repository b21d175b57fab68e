// An object sent in parts: the upload is started, sent part by part, and completed, or aborted if a part fails.
//
// An aborted upload is removed at once if the store responds; the bucket's own rule (AbortIncompleteMultipartUpload)
// removes the leftovers of a crash. Invariant: parts are not removed after the store may have begun to assemble them.

import HTTPTypes
import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol

struct MultipartUpload {
    private let requests: BucketRequests
    private let content: UpstreamContent
    private let partSize: Int64

    /// The maximum number of parts of an object (Amazon S3, multipart upload limits).
    private static let maximumParts: Int64 = 10_000

    /// `content` must be a file larger than one part.
    init(_ requests: BucketRequests, _ content: UpstreamContent) {
        self.requests = requests
        self.content = content
        partSize = Self.partSize(of: requests.object.length, wanted: requests.partSize)
    }

    /// Returns `wanted`, or a larger size in bytes if the object would have too many parts.
    ///
    /// The last part may be smaller.
    static func partSize(of length: Int64, wanted: Int64) -> Int64 {
        max(wanted, (length + maximumParts - 1) / maximumParts)
    }

    func store() throws(NotStored) {
        // Otherwise all parts would be sent before the store reports that the object exists.
        if try requests.isThere() { return }
        let upload = try begin()
        var tags: [String] = []
        do throws(NotStored) {
            while Int64(tags.count) * partSize < requests.object.length {
                tags.append(try sendPart(after: tags.count, of: upload))
            }
        } catch {
            abort(upload)
            throw error
        }
        try complete(upload, tags)
    }

    /// Returns the ID that the store assigned to the upload.
    private func begin() throws(NotStored) -> String {
        let response = try repeating { () throws(NotStored) in
            try requests.send(
                .post,
                query: "?uploads=",
                requests.object.fields,
                unsigned: requests.object.unsigned
            )
        }
        guard response.isDone else { throw response.refusal(requests.purpose) }
        guard let name = response.element("UploadId") else { throw nonsense("no UploadId") }
        return PercentText.encode(name)
    }

    /// Sends the part after the first `count` parts, and returns its entity tag.
    private func sendPart(after count: Int, of upload: String) throws(NotStored) -> String {
        let start = Int64(count) * partSize
        let length = min(partSize, requests.object.length - start)
        let response = try repeating { () throws(NotStored) in
            try requests.send(
                .put,
                query: "?partNumber=\(count + 1)&uploadId=\(upload)",
                content: content.part(from: start, length)
            )
        }
        guard response.isDone else {
            throw response.refusal("\(requests.purpose), part \(count + 1)")
        }
        guard let tag = response.head?.fields[.eTag],
            tag.utf8.allSatisfy({ (0x21...0x7e).contains($0) && !"<>&".utf8.contains($0) })
        else { throw nonsense("no ETag for part \(count + 1)") }
        return tag
    }

    private func complete(_ upload: String, _ tags: [String]) throws(NotStored) {
        let parts = tags.enumerated().map { index, tag in
            "<Part><PartNumber>\(index + 1)</PartNumber><ETag>\(tag)</ETag></Part>"
        }
        let list = "<CompleteMultipartUpload>\(parts.joined())</CompleteMultipartUpload>"
        let response = try repeating { () throws(NotStored) in
            try requests.send(
                .post,
                query: "?uploadId=\(upload)",
                BucketRequests.onlyNew,
                content: .bytes(Array(list.utf8))
            )
        }
        if response.isDone { return }
        // A failing store may have assembled the object nevertheless, and then no longer knows the parts.
        if response.status == 404, try requests.isThere() { return }
        if (300..<500).contains(response.status) { abort(upload) }
        if response.status == 412 { return try requests.requireThere() }
        throw response.refusal("\(requests.purpose), completing")
    }

    /// Calls `send`, and calls it again after temporary failures.
    ///
    /// The request must be safe to repeat.
    private func repeating(
        _ send: () throws(NotStored) -> BucketResponse
    ) throws(NotStored) -> BucketResponse {
        for pause in requests.pauses {
            let requested: Duration
            do throws(NotStored) {
                let response = try send()
                guard response.mayBeRepeated else { return response }
                requested = response.retryAfter.map { .seconds($0) } ?? .zero
            } catch {
                // Other failures are not likely to pass soon.
                switch error.outcome {
                case .notReached(_, timedOut: false), .indeterminate(_, timedOut: false):
                    requested = .zero
                default: throw error
                }
            }
            requests.wait(max(pause, min(requested, Self.longestPause)))
        }
        return try send()
    }

    /// Limits the pause that a store asks for, because the client is waiting too.
    private static let longestPause = Duration.seconds(30)

    private func abort(_ upload: String) {
        // `try?`: the cause of the abort is the error to report.
        _ = try? requests.send(.delete, query: "?uploadId=\(upload)")
    }

    private func nonsense(_ what: String) -> NotStored {
        let reason = "\(requests.purpose): the store sent \(what); check which server listens there"
        return NotStored(outcome: .deferred(reason: reason))
    }
}
