// A client like URLSession: it sends all content at once, remembers a 104's Location, and after a cut requests the
// offset there and appends the rest. It is cut once and retries nothing.

import Foundation
import SpoolgateTestSupport
import SpoolgateUploadProtocol

struct OptimisticClient {
    /// Without 4 and 7, in which it sends and receives the same fields as in 5 and 8.
    static let versions = Dialect.versions.filter { ![4, 7].contains($0) }

    let version: Int
    let method: String
    let content: Data

    struct Course {
        var interim: WireClient.Answer
        var retrieval: WireClient.Answer
        /// The offset at which it resumed.
        var offset: Int
        var final: WireClient.Answer
    }

    /// Uploads the content; the connection breaks when `isEnough`.
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

    /// The completeness field of a completing message.
    var isComplete: String { version == 3 ? "Upload-Incomplete: ?0" : "Upload-Complete: ?1" }

    private func own(_ type: String) -> [String] {
        ["Upload-Draft-Interop-Version: \(version)", "Content-Type: \(type)", "X-App: photos"]
    }
}
