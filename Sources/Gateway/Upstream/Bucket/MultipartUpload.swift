// An object in parts: begun, sent part by part from the content, completed; given up where a part fails.
//
// What a store cannot take just now, or what gets no answer, is sent again alone, a few times with growing pauses.
//
// What is given up is removed at once where the store still answers; what a death or a broken connection leaves
// behind is for the bucket's own rule (AbortIncompleteMultipartUpload). Invariant: parts are not removed once
// the store may be putting them together.

import HTTPTypes
import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// One upload that is put into a bucket in parts.
struct MultipartUpload {
    private let requests: BucketRequests
    private let content: UpstreamContent
    private let partSize: Int64

    /// The most parts that an object has (Amazon S3, multipart upload limits).
    private static let mostParts: Int64 = 10_000

    /// The upload of `content`, a file that is larger than one part.
    init(_ requests: BucketRequests, _ content: UpstreamContent) {
        self.requests = requests
        self.content = content
        partSize = Self.partSize(of: requests.object.length, wanted: requests.partSize)
    }

    /// Bytes of every part but the last, of `length`: those that are wanted, or more where there would be
    /// more parts than an object has.
    static func partSize(of length: Int64, wanted: Int64) -> Int64 {
        max(wanted, (length + mostParts - 1) / mostParts)
    }

    /// Puts the object there.
    func store() throws(NotStored) {
        // Else all parts would be sent before the store says that the object is there.
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

    /// Begins; the store's name for what is begun.
    private func begin() throws(NotStored) -> String {
        let answer = try repeating { () throws(NotStored) in
            try requests.send(
                .post,
                query: "?uploads=",
                requests.object.fields,
                unsigned: requests.object.unsigned
            )
        }
        guard answer.isDone else { throw answer.refusal(requests.purpose) }
        guard let name = answer.element("UploadId") else { throw nonsense("no UploadId") }
        return PercentText.encode(name)
    }

    /// Sends the part behind `count` others; its tag.
    private func sendPart(after count: Int, of upload: String) throws(NotStored) -> String {
        let start = Int64(count) * partSize
        let length = min(partSize, requests.object.length - start)
        let answer = try repeating { () throws(NotStored) in
            try requests.send(
                .put,
                query: "?partNumber=\(count + 1)&uploadId=\(upload)",
                content: content.part(from: start, length)
            )
        }
        guard answer.isDone else {
            throw answer.refusal("\(requests.purpose), part \(count + 1)")
        }
        guard let tag = answer.head?.fields[.eTag],
            tag.utf8.allSatisfy({ (0x21...0x7e).contains($0) && !"<>&".utf8.contains($0) })
        else { throw nonsense("no ETag for part \(count + 1)") }
        return tag
    }

    private func complete(_ upload: String, _ tags: [String]) throws(NotStored) {
        let parts = tags.enumerated().map { index, tag in
            "<Part><PartNumber>\(index + 1)</PartNumber><ETag>\(tag)</ETag></Part>"
        }
        let list = "<CompleteMultipartUpload>\(parts.joined())</CompleteMultipartUpload>"
        let answer = try repeating { () throws(NotStored) in
            try requests.send(
                .post,
                query: "?uploadId=\(upload)",
                BucketRequests.onlyNew,
                content: .bytes(Array(list.utf8))
            )
        }
        if answer.isDone { return }
        // A store that is in trouble may have them together all the same, and then knows the parts no more.
        if answer.status == 404, try requests.isThere() { return }
        if (300..<500).contains(answer.status) { abort(upload) }
        if answer.status == 412 { return try requests.requireThere() }
        throw answer.refusal("\(requests.purpose), completing")
    }

    /// Sends a request, and again if the store could not take it just now or gave no answer; each may be sent twice.
    private func repeating(
        _ send: () throws(NotStored) -> BucketAnswer
    ) throws(NotStored) -> BucketAnswer {
        for pause in requests.pauses {
            let asked: Duration
            do throws(NotStored) {
                let answer = try send()
                guard answer.asksToRepeat else { return answer }
                asked = answer.retryAfter.map { .seconds($0) } ?? .zero
            } catch {
                guard error.outcome.isPassing else { throw error }
                asked = .zero
            }
            requests.wait(max(pause, min(asked, Self.longestPause)))
        }
        return try send()
    }

    /// Longer than that no store is waited for, whatever it asks for: meanwhile its client waits, too.
    private static let longestPause = Duration.seconds(30)

    private func abort(_ upload: String) {
        // `try?`: why the upload was given up is what counts.
        _ = try? requests.send(.delete, query: "?uploadId=\(upload)")
    }

    private func nonsense(_ what: String) -> NotStored {
        let reason = "\(requests.purpose): the store sent \(what); check which server listens there"
        return NotStored(outcome: .putOff(reason: reason))
    }
}

extension AttemptOutcome {
    /// Whether the next try may succeed, and soon: no deadline has run out, and the content can be read.
    fileprivate var isPassing: Bool {
        switch self {
        case .notReached(_, let timedOut), .indeterminate(_, let timedOut): !timedOut
        case .answered, .notTried, .noRoom, .putOff, .redirected, .notForwarded, .abandoned,
            .unheard:
            false
        }
    }
}
