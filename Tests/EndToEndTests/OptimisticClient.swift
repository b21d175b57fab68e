// A client as URLSession is one: it sends everything at once and waits for nothing, remembers the
// Location that a 104 tells, and after a cut asks there for the offset and appends the rest. The
// app's own fields go with every request.
//
// It is cut exactly once, retries nothing, and believes what it is told.

import Foundation
import SpoolgateTestSupport

/// One upload by such a client.
struct OptimisticClient {
    /// Its interop version.
    let version: Int
    let method: String
    let content: Data

    /// What the client heard on its way.
    struct Course {
        /// The first response to the creation.
        var interim: WireClient.Answer
        /// The response to the offset retrieval.
        var retrieval: WireClient.Answer
        /// Where it went on.
        var offset: Int
        /// The final response, to the append.
        var final: WireClient.Answer
    }

    /// Uploads; the connection breaks when `isEnough`.
    func upload(
        to target: String,
        by carrier: any Carrier,
        cutWhen isEnough: () throws -> Bool
    ) throws -> Course {
        let interim = try carrier.cut(
            method,
            target,
            own("video/mp4") + [isComplete],
            content: content,
            when: isEnough
        )
        guard let location = interim["location"] else {
            throw WireClient.Broken(description: "no Location: \(interim)")
        }
        let empty = version >= 6 ? ["Content-Length: 0"] : []
        let retrieval = try carrier.ask("HEAD", location, own("video/mp4") + empty, content: nil)
        guard let offset = retrieval["upload-offset"].flatMap({ Int($0) }) else {
            throw WireClient.Broken(description: "no offset: \(retrieval)")
        }
        let type = version >= 6 ? "application/partial-upload" : "video/mp4"
        let final = try carrier.ask(
            "PATCH",
            location,
            own(type) + [isComplete, "Upload-Offset: \(offset)"],
            content: content.suffix(from: content.startIndex + offset)
        )
        return Course(interim: interim, retrieval: retrieval, offset: offset, final: final)
    }

    /// The completeness field of a message that is all, or the rest, of the upload.
    var isComplete: String { version == 3 ? "Upload-Incomplete: ?0" : "Upload-Complete: ?1" }

    private func own(_ type: String) -> [String] {
        ["Upload-Draft-Interop-Version: \(version)", "Content-Type: \(type)", "X-App: photos"]
    }
}
