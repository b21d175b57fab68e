// Unusual HTTP of upstreams and clients, through a real nginx.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("Other backends")
struct BackendTests {
    @Test(
        "a status without a reason phrase reaches the client as a status line",
        arguments: [201, 299]
    )
    func phrase(status: Int) throws {
        let upstream = try LoopbackOrigin { connection in
            while try connection.receiveRequest() != nil {
                try connection.send("HTTP/1.1 \(status)\r\nContent-Length: 2\r\n\r\nok")
            }
        }
        let sandbox = try Sandbox(upstream: upstream.base)
        let resource = try sandbox.create("/files/b")
        for arguments in [
            ["-X", "GET", "/files/a"], ["-T", "/dev/null", "/files/a"],
            [
                "-X", "PATCH", "-H", "Upload-Complete: ?1", "-H", "Upload-Offset: 0", "-H",
                "Content-Type: application/partial-upload", "-d", "hello", String(resource),
            ],
        ] {
            let url = "http://127.0.0.1:\(sandbox.port)\(arguments.last ?? "")"
            let seen = try sandbox.curl(["-i"] + arguments.dropLast() + [url])
            let phrase = status == 201 ? "Created" : "Unknown"
            #expect(seen.output.contains("HTTP/1.1 \(status) \(phrase)\r\n"), "\(seen.output)")
        }
    }

    @Test("curl that resumes in the middle of a file does not turn the rest into a whole file")
    func partialPut() throws {
        let sandbox = try Sandbox()
        let (file, _) = try sandbox.randomFile(1_000)
        let sent = try sandbox.curl([
            "-C", "3", "-T", file.path(), "-w", "%{http_code}", "-o", "/dev/null",
            "http://127.0.0.1:\(sandbox.port)/files/f.bin",
        ])
        #expect(sent.output == "400")
        let folder = sandbox.directory.appending(path: "delivered").path()
        #expect(try FileManager.default.contentsOfDirectory(atPath: folder).isEmpty)
    }

    @Test(
        "a file delivered to a directory has the client's name, and its record the known metadata"
    )
    func drop() throws {
        let sandbox = try Sandbox(routeSettings: ["digest: sha-256"])
        let name = "Grün  \"1\" " + String(repeating: "é", count: 120) + ".tar.gz"
        let encoded = name.addingPercentEncoding(withAllowedCharacters: .alphanumerics) ?? ""
        let response = try sandbox.ask(
            "POST",
            "/files/x",
            [
                "Content-Disposition: attachment; filename*=UTF-8''\(encoded)",
                "Content-Encoding: gzip", "Content-Type: application/x-tar",
            ],
            content: Data("hello\n".utf8)
        )
        #expect(response.status == 201)
        let tus = try sandbox.ask(
            "POST",
            "/files/",
            [
                "Tus-Resumable: 1.0.0", "Upload-Length: 6",
                "Content-Type: application/offset+octet-stream",
                "Upload-Metadata: filename w7wudHh0,note dHdvICB3b3Jkcw==",
            ],
            content: Data("hello\n".utf8)
        )
        #expect(tus.status == 201)
        let folder = sandbox.directory.appending(path: "delivered")
        let names = try FileManager.default.contentsOfDirectory(atPath: folder.path())
        #expect(names.count == 4 && names.allSatisfy { $0.utf8.count <= 255 })
        for name in names where name.hasSuffix(".json") {
            let text = try Data(contentsOf: folder.appending(path: name))
            let record = try #require(
                try JSONSerialization.jsonObject(with: text) as? [String: Any]
            )
            let file = try #require(record["file"] as? String)
            let content = try Data(contentsOf: folder.appending(path: file))
            #expect(String(decoding: content, as: UTF8.self) == "hello\n")
            #expect(
                record["digest"] as? [String: String] == [
                    "sha-256": "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
                ]
            )
            if file.hasSuffix(".gz") {
                #expect(
                    record["name"] as? String == "Grün  \"1\" " + String(repeating: "é", count: 120)
                        + ".tar.gz"
                )
                #expect(record["content-encoding"] as? String == "gzip")
            } else {
                #expect(file.hasSuffix("-ü.txt") && record["name"] as? String == "ü.txt")
                #expect(
                    record["metadata"] as? [String: String]
                        == ["filename": "ü.txt", "note": "two  words"]
                )
            }
        }
    }
}
