// Uploads as forms, parsed by PHP behind nginx and PHP-FPM.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("Forms", .enabled(if: Command.find("nginx") != nil, "nginx is not installed"))
struct FormTests {
    private static let settings = [
        "form: multipart", "digest: sha-256",
        "multipart: {fields: {source: gateway}, from-fields: {album: X-Album}}",
    ]

    private func heard(_ response: WireClient.Answer) throws -> [String: Any] {
        try #require(JSONSerialization.jsonObject(with: response.content) as? [String: Any])
    }

    @Test(
        "an upload in parts reaches PHP as one uploaded file, which PHP can move",
        arguments: [false, true]
    )
    func file(isPut: Bool) throws {
        let upstream = try RealUpstream()
        let sandbox = try Sandbox(upstream: upstream.url, routeSettings: Self.settings)
        let (_, bytes) = try sandbox.randomFile(5 << 20)
        let fields = [
            "Content-Type: video/mp4", "X-Album: été", "Upload-Metadata: k w6kiCg==,source eA==",
        ]
        let response: WireClient.Answer
        if isPut {
            response = try sandbox.ask("PUT", "/files/index.php?album=7", fields, content: bytes)
        } else {
            let resource = try sandbox.create("/files/index.php?album=7", fields)
            _ = try sandbox.append(resource, bytes.prefix(2 << 20), complete: false)
            let rest = bytes.suffix(from: 2 << 20)
            response = try sandbox.append(resource, offset: 2 << 20, rest)
        }
        #expect(response.status == 202)
        let heard = try heard(response)
        #expect(heard["method"] as? String == "POST")
        #expect(heard["uri"] as? String == "/files/index.php?album=7")
        let files = try #require(heard["files"] as? [String: [String: Any]])
        let file = try #require(files["file"])
        #expect(files.count == 1)
        #expect(file["name"] as? String == "index.php")
        #expect(file["type"] as? String == "video/mp4")
        #expect(file["size"] as? Int == bytes.count)
        #expect(file["error"] as? Int == 0)
        #expect(file["moved"] as? Bool == true)
        #expect(file["sha1"] as? String == (try RealUpstream.sha1(of: bytes)))
        let post = try #require(heard["post"] as? [String: String])
        #expect(Set(post.keys) == ["k", "source", "album", "sha-256"])
        #expect(post["k"] == "é\"\n" && post["source"] == "gateway" && post["album"] == "été")
        #expect(try upstream.phpCalls() == 1)
    }

    @Test("PHP receives every name unchanged, and a name cannot add a field")
    func names() throws {
        let upstream = try RealUpstream()
        let sandbox = try Sandbox(upstream: upstream.url, routeSettings: Self.settings)
        let long = String(repeating: "a", count: 296)
        let names: [(disposition: String, name: String)] = [
            ("attachment; filename=\"the file.txt\"", "the file.txt"),
            ("attachment; filename*=UTF-8''na%C3%AFve%20%e2%82%ac.txt", "naïve €.txt"),
            ("attachment; filename=\"a\\\"; name=\\\"source\"", "a%22; name=%22source"),
            (
                "attachment; filename*=UTF-8''a%22%0d%0a%0d%0ax%0d%0a--b.txt", "a%22x--b.txt"
            ),
            ("attachment; filename=\"../../etc/passwd\"", "passwd"),
            ("attachment; filename*=UTF-8''..%5c..%5cboot.ini", "boot.ini"),
            ("attachment; filename=\(long).txt", "\(long.prefix(251)).txt"),
            ("attachment; filename=\"a;b=c,d'e.txt\"", "a;b=c,d'e.txt"),
        ]
        for (disposition, name) in names {
            let response = try sandbox.ask(
                "POST",
                "/files/index.php",
                ["Content-Disposition: \(disposition)"],
                content: Data()
            )
            let heard = try heard(response)
            let files = try #require(heard["files"] as? [String: [String: Any]])
            #expect(files["file"]?["name"] as? String == name)
            #expect(files["file"]?["size"] as? Int == 0)
            #expect(files.count == 1)
            #expect((heard["post"] as? [String: String])?.keys.sorted() == ["sha-256", "source"])
        }
    }

    @Test("a browser's form reaches PHP unchanged")
    func browser() throws {
        let upstream = try RealUpstream()
        let sandbox = try Sandbox(upstream: upstream.url, routeSettings: Self.settings)
        let (file, bytes) = try sandbox.randomFile(300_000)
        let said = try sandbox.curl([
            "-F", "title=été", "-F", "photo=@\(file.path());filename=p.png",
            "http://127.0.0.1:\(sandbox.port)/files/index.php",
        ]).output
        let heard = try #require(
            JSONSerialization.jsonObject(with: Data(said.utf8)) as? [String: Any]
        )
        let files = try #require(heard["files"] as? [String: [String: Any]])
        #expect(files["photo"]?["sha1"] as? String == (try RealUpstream.sha1(of: bytes)))
        #expect(heard["post"] as? [String: String] == ["title": "été"])
    }

    @Test(
        "PHP moves a file by its path; check reports a key that others can read"
    )
    func path() throws {
        let folder = try ScratchDirectory()
        let key = folder.file("key")
        try Data("0123456789abcdef".utf8).write(to: URL(filePath: key))
        #expect(chmod(key, 0o640) == 0)
        let upstream = try RealUpstream()
        let sandbox = try Sandbox(
            upstream: upstream.url,
            routeSettings: ["form: path", "path: {directory: \(folder.path), key-file: \(key)}"]
        )
        let (_, bytes) = try sandbox.randomFile(5 << 20)
        let resource = try sandbox.create("/files/index.php", ["Content-Type: video/mp4"])
        let response = try sandbox.append(resource, bytes)
        #expect(response.status == 202)
        let post = try #require(try heard(response)["post"] as? [String: String])
        let path = try #require(post["path"])
        #expect(path.hasPrefix(folder.path) && path.hasSuffix("-index.php"))
        #expect(post["size"] == "\(bytes.count)")
        // The upstream's 2xx did not move the file, so the gateway removed it.
        #expect(folder.names == ["key"])
        #expect(try sandbox.spoolgate("check").status == 0)
        #expect(chmod(key, 0o644) == 0)
        let check = try sandbox.spoolgate("check")
        #expect(check.status == 78)
        #expect(check.errors.contains("routes.default.path.key-file: \(key) is readable by others"))
    }
}
