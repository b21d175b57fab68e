// In every dialect, a client can request a lost final response again, and the upload is delivered once.

import Foundation
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import Testing

@Suite("A lost final response")
struct LostResponseTests {
    struct Speaker: CustomTestStringConvertible, Sendable {
        let version: Int?

        var testDescription: String { version.map { "version \($0)" } ?? "no version" }
        var versionField: [String] {
            version.map { ["Upload-Draft-Interop-Version: \($0)"] } ?? []
        }

        func completeness(_ isComplete: Bool) -> String {
            version == 3
                ? "Upload-Incomplete: ?\(isComplete ? 0 : 1)"
                : "Upload-Complete: ?\(isComplete ? 1 : 0)"
        }

        static let all =
            Dialect.versions.map { Speaker(version: $0) } + [Speaker(version: nil)]
    }

    private static let content = Data((0..<300_000).map { UInt8(truncatingIfNeeded: $0 / 7) })

    @Test(
        "after a cut during the upstream's work, the client still receives the upstream's response",
        arguments: Speaker.all,
        [201, 422]
    )
    func cutInDelivery(speaker: Speaker, status: Int) throws {
        let moments = Moments()
        let upstream = try LoopbackOrigin(passing: moments)
        let sandbox = try Sandbox(upstream: upstream.base)
        let target = "/files/lost?status=\(status)"
        let resource = try create(sandbox, target, speaker)
        moments.begin(clients: 1)
        moments.lookOut(for: .delivered, holds: true)
        let sender = try sandbox.open("PATCH", resource, append(speaker, at: 0, Self.content.count))
        sender.send(Self.content)
        #expect(moments.waitForIt())
        sender.cut(reset: true)
        moments.goOn()
        try recover(sandbox, resource, speaker, status)
        #expect(upstream.contents(to: target) == [Self.content])
    }

    @Test(
        "after a cut before the response, also if the daemon is killed and restarted",
        arguments: Speaker.all
    )
    func cutAndKilled(speaker: Speaker) throws {
        let upstream = try LoopbackOrigin(passing: Moments())
        let sandbox = try Sandbox(upstream: upstream.base)
        let resource = try create(sandbox, "/files/lost", speaker)
        let sender = try sandbox.open("PATCH", resource, append(speaker, at: 0, Self.content.count))
        sender.send(Self.content)
        // No client reads the response; the log shows that it is stored.
        try eventually("delivered") { sandbox.log.contains(" msg=\"upload delivered\" ") }
        sender.cut(reset: true)
        try sandbox.crash()
        try recover(sandbox, resource, speaker, 201)
        #expect(upstream.requests(to: "/files/lost").count == 1)
    }

    // MARK: A client's steps

    private func create(_ sandbox: Sandbox, _ target: String, _ speaker: Speaker) throws -> String {
        let response = try sandbox.ask(
            "POST",
            target,
            [speaker.completeness(false)] + speaker.versionField,
            content: Data()
        )
        #expect(response.status == 201)
        return String(try #require(response["location"]).drop(upTo: "/files/"))
    }

    private func append(_ speaker: Speaker, at offset: Int, _ length: Int) -> [String] {
        speaker.versionField + [
            speaker.completeness(true), "Upload-Offset: \(offset)",
            "Content-Type: application/partial-upload", "Content-Length: \(length)",
        ]
    }

    /// Requests the offset until it is reported, appends the rest (here nothing) and receives the response.
    private func recover(
        _ sandbox: Sandbox,
        _ resource: String,
        _ speaker: Speaker,
        _ status: Int
    ) throws {
        var head = try sandbox.ask("HEAD", resource, speaker.versionField)
        try eventually("a response to HEAD") {
            if head.status != 423, head.status != 503 { return true }
            head = try sandbox.ask("HEAD", resource, speaker.versionField)
            return false
        }
        if status >= 400, [5, 6].contains(speaker.version) {
            // Such a client takes offset == length for success, so it must not receive that.
            #expect(head.status == 410)
        } else {
            #expect(head.status == 204)
            #expect(head["upload-offset"] == "\(Self.content.count)")
        }
        let response = try sandbox.ask(
            "PATCH",
            resource,
            append(speaker, at: Self.content.count, 0)
        )
        #expect(response.status == status)
        #expect(response["x-upstream"] == "recording")
        #expect(response.content.starts(with: Data("stored /files/lost".utf8)))
    }
}
