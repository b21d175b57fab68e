// Later interim responses through nginx: durable offsets, and heartbeats while the upstream works.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("Progress and heartbeats through nginx with the module")
struct ProgressTests {
    private static let eager = "interim: {heartbeat: 1s}"
    private static let creation = ["Upload-Draft-Interop-Version: 10", "Upload-Complete: ?1"]

    // Long because the client is slow: several interim responses must be due.
    @Test("a slow client receives rising offsets, and a crash takes none back")
    func progress() throws {
        let sandbox = try Sandbox(extra: [Self.eager], front: .nginxWithModule)
        let bytes = try sandbox.randomFile(8 << 20).bytes
        let client = try sandbox.open("PUT", "/files/slow.bin", Self.creation, length: 8 << 20)
        let location = try #require(try client.readAny()["location"])
        var sent = 0
        var told = 0
        for round in 1...2 {
            // A report is due once this many bytes more have arrived, and a second has passed.
            let maximum = round * 3 << 20
            client.send(bytes[sent..<maximum])
            sent = maximum
            try eventually("a 104 reports progress") {
                client.send(bytes[sent..<sent + 10])
                sent += 10
                return client.isReadable
            }
            let progress = try client.readAny()
            #expect(progress.status == 104)
            #expect(progress["location"] == nil)
            let offset = try #require(progress["upload-offset"].flatMap { Int($0) })
            #expect(offset > told && offset <= sent)
            told = offset
        }
        try crash(sandbox, goingOnWith: location, bytes, told: told, sent: sent)
    }

    /// Kills the gateway; the upload must continue at or after the last reported offset.
    private func crash(
        _ sandbox: Sandbox,
        goingOnWith location: String,
        _ bytes: Data,
        told: Int,
        sent: Int
    ) throws {
        try sandbox.crash()
        let resource = String(location.drop(upTo: "/files/"))
        let offset = try sandbox.offset(of: resource)
        #expect(offset >= told && offset <= sent)
        let rest = bytes.suffix(from: offset)
        #expect(try sandbox.append(resource, offset: offset, rest).status == 201)
        #expect(try sandbox.delivered().map { try Data(contentsOf: $0) } == [bytes])
    }

    @Test("over HTTP/2 a slow client receives rising offsets while it sends")
    func progressOverHTTP2() throws {
        let sandbox = try Sandbox(extra: [Self.eager], front: .nginxWithModule)
        let bytes = try sandbox.randomFile(6 << 20).bytes
        let carrier = CurlCarrier(
            origin: "https://127.0.0.1:\(sandbox.tlsPort)",
            directory: sandbox.directory,
            options: ["--limit-rate", "1M"]
        )
        let responses = try carrier.askAll("PUT", "/files/slow.bin", Self.creation, content: bytes)
        #expect(responses.first?["location"] != nil)
        #expect(responses.last?.status == 201)
        let offsets = responses.dropLast().filter { $0.status == 104 }
            .compactMap { $0["upload-offset"].flatMap { Int($0) } }
        #expect(offsets.count > 1)
        #expect(zip(offsets, offsets.dropFirst()).allSatisfy { $0 < $1 })
        #expect(offsets.allSatisfy { $0 > 0 && $0 <= bytes.count })
        #expect(try sandbox.delivered().map { try Data(contentsOf: $0) } == [bytes])
    }

    @Test(
        "a client that waits for buffer space receives durable offsets, and a crash takes none back"
    )
    func progressOfUnknownLength() throws {
        let sandbox = try Sandbox(front: .nginxWithModule)
        let bytes = try sandbox.randomFile(12 << 20).bytes
        let client = try sandbox.open(
            "PUT",
            "/files/endless.bin",
            Self.creation + ["Transfer-Encoding: chunked"]
        )
        let location = try #require(try client.readAny()["location"])
        var sent = 0
        var told = 0
        // The client sends 5 MiB and waits for a report of 4 MiB more, although no interval has passed.
        for round in 1...2 {
            client.sendChunk(bytes[sent..<sent + 5 << 20])
            sent += 5 << 20
            while told < round * 4 << 20 {
                let progress = try client.readAny()
                #expect(progress.status == 104)
                let offset = try #require(progress["upload-offset"].flatMap { Int($0) })
                try #require(offset > told && offset <= sent)
                told = offset
            }
        }
        try crash(sandbox, goingOnWith: location, bytes, told: told, sent: sent)
    }

    @Test(
        "while the upstream works on a complete upload, heartbeats report its length; then its response follows"
    )
    func heartbeats() throws {
        let isDone = Gate()
        let origin = try LoopbackOrigin { connection in
            guard try connection.receiveRequest() != nil else { return }
            isDone.pass()
            try connection.response("202 Accepted", content: "at last")
        }
        let sandbox = try Sandbox(
            upstream: origin.base,
            extra: [Self.eager],
            front: .nginxWithModule
        )
        let client = try sandbox.open("PUT", "/files/long.bin", Self.creation, length: 300000)
        #expect(try client.readAny()["location"] != nil)
        client.send(Data(repeating: 1, count: 300_000))
        for _ in 0..<2 {
            let heartbeat = try client.readAny()
            #expect(heartbeat.status == 104)
            #expect(heartbeat["upload-offset"] == "300000")
        }
        isDone.open()
        let response = try client.read()
        #expect(response.status == 202)
        #expect(response.text == "at last")
        #expect(origin.requests.count == 1)
    }
}
