// The PHP recipes of docs/RECIPES.md, with a real nginx and PHP-FPM.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite(
    "PHP",
    .enabled(
        if: PHPApplication.program != nil && Command.find("nginx") != nil,
        "php-fpm or nginx is not installed"
    )
)
struct PHPRecipeTests {
    /// Uploads in two parts, and returns the final response.
    private func upload(
        _ bytes: Data,
        _ fields: [String] = [],
        in sandbox: Sandbox
    ) throws -> WireClient.Answer {
        let name = "Content-Disposition: attachment; filename=\"summer.mp4\""
        // A location for scripts might match this path.
        let resource = try sandbox.create("/files/media.php", [name] + fields)
        let half = bytes.count / 2
        _ = try sandbox.append(resource, bytes.prefix(half), complete: false)
        return try sandbox.append(resource, offset: half, bytes.dropFirst(half))
    }

    @Test("a PHP form")
    func form() throws {
        let application = try PHPApplication(script: RecipeBlock.text("php", "php"))
        let sandbox = try Sandbox(
            upstream: application.url,
            routeSettings: RecipeBlock.route("php")
        )
        let (_, bytes) = try sandbox.randomFile(3 << 20)
        let response = try upload(bytes, ["X-Title: Summer"], in: sandbox)
        #expect(response.status == 201)
        #expect(response.text == #"{"name":"summer.mp4","size":3145728,"title":"Summer"}"#)
        let stored = try application.stored()
        try #require(stored.count == 1)
        #expect(stored.first?.key.hasSuffix("-summer.mp4") == true)
        #expect(stored.first?.value == bytes)
        let ini = sandbox.directory.appending(path: "php.ini")
        try RecipeBlock.text("php", "ini").write(to: ini, atomically: true, encoding: .utf8)
        let told = try Command(try #require(PHPApplication.program), ["-c", ini.path(), "-i"])
        for line in [
            "upload_max_filesize => 16G => 16G", "post_max_size => 17G => 17G",
            "upload_tmp_dir => /srv/app/tmp", "max_input_time => 0 => 0",
        ] { #expect(told.output.contains(line)) }
    }

    /// A line of the recipe, and the result without it.
    struct Line: CustomTestStringConvertible {
        var text: String?
        var status: Int
        var words: String

        var testDescription: String { text.map { "without \($0)" } ?? "as shown" }
    }

    @Test(
        "a file larger than /tmp is renamed and not copied",
        .enabled(if: PHPApplication.canConfine, "only root can make a mount namespace"),
        arguments: [
            Line(text: nil, status: 201, words: #""size":41943040"#),
            Line(text: "upload_tmp_dir", status: 422, words: "no file: error 7"),
            Line(text: "fastcgi_request_buffering", status: 500, words: "500"),
        ]
    )
    func largerThanTmp(line: Line) throws {
        let application = try PHPApplication(
            script: RecipeBlock.text("php", "php"),
            without: line.text,
            confined: true
        )
        let sandbox = try Sandbox(
            upstream: application.url,
            routeSettings: RecipeBlock.route("php")
        )
        let (_, bytes) = try sandbox.randomFile(40 << 20)
        let response = try upload(bytes, in: sandbox)
        #expect(response.status == line.status)
        #expect(response.text.contains(line.words), "\(response.text)")
        #expect(try application.stored().values.map { $0 } == (line.text == nil ? [bytes] : []))
    }

    private func number(of path: String, _ conditions: [String] = []) throws -> Int {
        let arguments = [path, "-type", "f"] + conditions + ["-printf", "%i\n"]
        let found = try Command("/usr/bin/find", arguments).output.split(separator: "\n")
        try #require(found.count == 1, "\(found)")
        return try #require(Int(found[0]))
    }

    @Test("a signed path: the file is on disk once, and a forged form is refused")
    func path() throws {
        let folder = try ScratchDirectory(in: "/var/tmp", "path")
        let key = folder.file("path.key")
        try Data("0123456789abcdef0123456789abcdef\n".utf8).write(to: URL(filePath: key))
        try #require(chmod(key, 0o640) == 0)
        for name in ["handover", "uploads"] { try #require(mkdir(folder.file(name), 0o755) == 0) }
        let script = try RecipeBlock.text(
            "php-path",
            "php",
            [
                "/etc/spoolgate/path.key": key,
                "/var/lib/app/uploads/": folder.file("uploads") + "/",
            ]
        )
        let application = try PHPApplication(script: script)
        let sandbox = try Sandbox(
            upstream: application.url,
            routeSettings: RecipeBlock.route(
                "php-path",
                "default",
                ["/var/spool/handover": folder.file("handover"), "/etc/spoolgate/path.key": key]
            ),
            spool: folder.file("spool")
        )
        let (_, bytes) = try sandbox.randomFile(2 << 20)
        let resource = try sandbox.create(
            "/files/film",
            ["Content-Disposition: attachment; filename*=UTF-8''na%C3%AFve%20%e2%82%ac.txt"]
        )
        _ = try sandbox.append(resource, bytes.prefix(1 << 20), complete: false)
        let received = try number(of: folder.file("spool"), ["-size", "+1000k"])
        let response = try sandbox.append(resource, offset: 1 << 20, bytes.dropFirst(1 << 20))
        #expect(response.status == 201)
        let told = try JSONSerialization.jsonObject(with: Data(response.text.utf8))
        #expect((told as? [String: Any])?["name"] as? String == "naïve €.txt", "\(response.text)")
        let names = try FileManager.default.contentsOfDirectory(atPath: folder.file("uploads"))
        try #require(names.count == 1 && names[0].hasSuffix("-naïve €.txt"), "\(names)")
        let stored = folder.file("uploads/" + names[0])
        #expect(try Data(contentsOf: URL(filePath: stored)) == bytes)
        #expect(try number(of: stored) == received)
        let port = try #require(URL(string: application.url)?.port)
        for forged in [
            "path=/etc/passwd&upload=x&name=x&size=1&time=\(Int(Date().timeIntervalSince1970))",
            "path[]=/etc/passwd&signature[]=00&time=\(Int(Date().timeIntervalSince1970))",
        ] {
            let refused = try WireClient(port: port).ask(
                "POST",
                "/files/x",
                ["Content-Type: application/x-www-form-urlencoded"],
                content: Data((forged + "&signature=00").utf8)
            )
            #expect(refused.status == 403, "\(refused.text)")
        }
    }
}
