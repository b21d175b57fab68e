// The recipes of docs/RECIPES.md, each with its application.

import Foundation
import SpoolgatePosix
import SpoolgateTestSupport
import Testing

@Suite("Recipes", .enabled(if: Command.find("nginx") != nil, "nginx is not installed"))
struct RecipeTests {
    @Test("each block of the pages is run by a test")
    func complete() {
        let run: Set = [
            "dav yaml", "directory yaml", "directory nginx", "directory clean.sh", "path yaml",
            "path django.py",
            "path ruby", "bucket yaml", "apache apache.conf", "curl upload.sh", "routes yaml",
            "routes nginx",
            // Run by PHPRecipeTests, ClamRecipeTests and ProxyRecipeTests.
            "php yaml", "php nginx", "php ini", "php php", "php-path yaml", "php-path php",
            "clamd yaml", "clamd clamd.conf",
            "behind nginx", "few yaml", "haproxy haproxy.cfg", "caddy Caddyfile",
            "apache-front apache.conf", "nginx-front nginx.conf", "cloudflare yaml",
        ]
        #expect(Set(RecipeBlock.all.map { "\($0.recipe) \($0.name)" }) == run)
    }

    private func write(_ text: String, to url: URL) throws {
        try FileManager.default.createDirectory(
            at: url.deletingLastPathComponent(),
            withIntermediateDirectories: true
        )
        try text.write(to: url, atomically: true, encoding: .utf8)
    }

    /// Uploads in two parts, like a client after a cut.
    private func upload(
        _ bytes: Data,
        to target: String,
        _ fields: [String] = [],
        in sandbox: Sandbox
    ) throws -> WireClient.Answer {
        let resource = try sandbox.create(target, fields)
        let half = bytes.count / 2
        _ = try sandbox.append(resource, bytes.prefix(half), complete: false)
        return try sandbox.append(resource, offset: half, bytes.dropFirst(half))
    }

    // MARK: Applications

    @Test("a PUT to WebDAV")
    func dav() throws {
        let upstream = try RealUpstream()
        let settings = try RecipeBlock.route("dav")
        #expect(settings == [], "the route has only its upstream")
        let sandbox = try Sandbox(upstream: upstream.url)
        let (file, bytes) = try sandbox.randomFile(2 << 20)
        let url = "http://127.0.0.1:\(sandbox.port)/files/dav/film.mp4"
        #expect(try sandbox.curl(["-f", "-T", file.path(), url]).status == 0)
        #expect(try upstream.davFile("film.mp4") == bytes)
    }

    private func handover() throws -> (folder: ScratchDirectory, key: String, files: String) {
        let folder = try ScratchDirectory()
        let key = folder.file("path.key")
        try Data("0123456789abcdef0123456789abcdef\n".utf8).write(to: URL(filePath: key))
        try #require(chmod(key, 0o640) == 0)
        for name in ["handover", "files"] { try #require(mkdir(folder.file(name), 0o755) == 0) }
        return (folder, key, folder.file("files"))
    }

    private func pathRoute(_ folder: ScratchDirectory, _ key: String) throws -> [String] {
        try RecipeBlock.route(
            "path",
            "default",
            ["/srv/handover": folder.file("handover"), "/etc/spoolgate/path.key": key]
        )
    }

    @Test(
        "Django moves a file by its path, and refuses a forged form",
        .enabled(if: TusClient.areInstalled, TusClient.missing)
    )
    func django() throws {
        let (folder, key, files) = try handover()
        let view = try RecipeBlock.text(
            "path",
            "django.py",
            ["/etc/spoolgate/path.key": key, "/srv/files": files]
        )
        try write(view, to: URL(filePath: folder.file("views.py")))
        let port = try FreePort.take(1)[0]
        try write(
            """
            from wsgiref.simple_server import make_server
            from django.conf import settings
            settings.configure(ROOT_URLCONF="urls", ALLOWED_HOSTS=["*"], SECRET_KEY="x")
            from django.core.wsgi import get_wsgi_application
            make_server("127.0.0.1", \(port), get_wsgi_application()).serve_forever()
            """,
            to: URL(filePath: folder.file("serve.py"))
        )
        try write(
            """
            from django.urls import path
            from views import upload
            urlpatterns = [path("files/upload", upload)]
            """,
            to: URL(filePath: folder.file("urls.py"))
        )
        let server = try Daemon(
            TusClient.python,
            [folder.file("serve.py")],
            log: URL(filePath: folder.file("django.log"))
        )
        defer { server.signal(SIGKILL) }
        try eventually("Django listens") { (try? WireClient(port: port)) != nil }
        let sandbox = try Sandbox(
            upstream: "http://127.0.0.1:\(port)",
            routeSettings: pathRoute(folder, key)
        )
        let (_, bytes) = try sandbox.randomFile(1 << 20)
        let response = try upload(
            bytes,
            to: "/files/upload",
            ["Content-Disposition: attachment; filename*=UTF-8''na%C3%AFve%20%e2%82%ac.txt"],
            in: sandbox
        )
        #expect(response.status == 201)
        #expect(response.text == "naïve €.txt: 1048576 bytes")
        let taken = try FileManager.default.contentsOfDirectory(atPath: files)
        try #require(taken.count == 1)
        #expect(try Data(contentsOf: URL(filePath: files + "/" + taken[0])) == bytes)
        // A client that reaches the application but does not know the key.
        let time = Int(Date().timeIntervalSince1970)
        let forged = try WireClient(port: port).ask(
            "POST",
            "/files/upload",
            ["Content-Type: application/x-www-form-urlencoded"],
            content: Data("path=/etc/passwd&upload=x&time=\(time)&signature=00".utf8)
        )
        #expect(forged.status == 403)
    }

    @Test(
        "a signature that Ruby verifies",
        .enabled(if: Command.find("ruby") != nil, "ruby is not installed")
    )
    func ruby() throws {
        let (folder, key, _) = try handover()
        let origin = try LoopbackOrigin { connection in
            while try connection.receiveRequest() != nil {
                try connection.response("204 No Content")
            }
        }
        let sandbox = try Sandbox(upstream: origin.base, routeSettings: pathRoute(folder, key))
        let (_, bytes) = try sandbox.randomFile(300_000)
        let response = try upload(
            bytes,
            to: "/files/upload",
            ["Content-Disposition: attachment; filename*=UTF-8''na%C3%AFve%20%e2%82%ac.txt"],
            in: sandbox
        )
        #expect(response.status == 204)
        let form = String(decoding: try #require(origin.requests.last).content, as: UTF8.self)
        let checked = try RecipeBlock.text("path", "ruby", ["/etc/spoolgate/path.key": key])
        let script = URL(filePath: folder.file("check.rb"))
        try write(
            checked + """

                require 'uri'
                members = URI.decode_www_form(ARGV[0]).to_h
                puts signed?(members)
                puts signed?(members.merge('path' => '/etc/passwd'))
                puts signed?(members.merge('time' => '1'))
                puts signed?(members.merge('signature' => ''))
                """,
            to: script
        )
        let told = try Command(Command.find("ruby") ?? "ruby", [script.path(), form])
        #expect(told.output == "true\nfalse\nfalse\nfalse\n", "\(told.errors)")
    }

    @Test("a directory that nginx serves to users with a password")
    func directory() throws {
        let folder = try ScratchDirectory()
        let delivered = folder.path
        let passwords = folder.file("passwords")
        try write("alice:{PLAIN}secret\n", to: URL(filePath: passwords))
        let files = folder.file("delivered")
        try #require(mkdir(files, 0o770) == 0 && chmod(delivered, 0o755) == 0)
        let locations = try RecipeBlock.text(
            "directory",
            "nginx",
            [
                "/usr/share/spoolgate/nginx/": "", "/etc/nginx/uploads.htpasswd": passwords,
                "/var/spool/spoolgate-delivered": files,
            ]
        )
        let settings = try RecipeBlock.route(
            "directory",
            "default",
            ["/var/spool/spoolgate-delivered": files]
        )
        try #require(settings.first == "upstream: directory:\(files)")
        let sandbox = try Sandbox(
            upstream: "directory:\(files)",
            routeSettings: Array(settings.dropFirst()),
            front: .nginxServing(locations)
        )
        let login = "Authorization: Basic \(Data("alice:secret".utf8).base64EncodedString())"
        let (_, bytes) = try sandbox.randomFile(1 << 20)
        #expect(try sandbox.ask("PUT", "/files/film.html", content: bytes).status == 401)
        let resource = try sandbox.create("/files/film.html", [login])
        let half = bytes.count / 2
        _ = try sandbox.append(resource, bytes.prefix(half), complete: false, fields: [login])
        let response = try sandbox.append(
            resource,
            offset: half,
            bytes.dropFirst(half),
            fields: [login]
        )
        #expect(response.status == 201)
        let told =
            try JSONSerialization.jsonObject(with: Data(response.text.utf8)) as? [String: Any]
        let name = try #require(told?["id"] as? String) + "-film.html"
        #expect(
            try FileManager.default.contentsOfDirectory(atPath: files).sorted() == [
                name, name + ".json",
            ]
        )
        let record = try Data(contentsOf: URL(filePath: "\(files)/\(name).json"))
        let members = try JSONSerialization.jsonObject(with: record) as? [String: Any]
        #expect(members?["owner"] as? String == "alice")
        #expect(members?["name"] as? String == "film.html")
        // nginx's user is in their group.
        let user = try #require(getpwnam("nobody")).pointee
        try write("half", to: URL(filePath: files + "/.half"))
        for path in ["", "/" + name, "/\(name).json", "/.half"] where getuid() == 0 {
            try #require(chown(files + path, 0, user.pw_gid) == 0)
        }
        let served = try sandbox.ask("GET", "/delivered/" + name, [login])
        #expect(served.status == 200 && Data(served.content) == bytes)
        #expect(served["content-type"] == "application/octet-stream")
        #expect(served["content-disposition"] == "attachment")
        let part = try sandbox.ask("GET", "/delivered/" + name, [login, "Range: bytes=5-8"])
        #expect(part.status == 206 && Data(part.content) == bytes[5...8])
        let list = try sandbox.ask("GET", "/delivered/", [login])
        #expect(list.text.contains(name) && !list.text.contains("half"))
        for (method, path, fields, status) in [
            ("GET", name, [], 401), ("GET", ".half", [login], 404), ("PUT", "x", [login], 403),
        ] { #expect(try sandbox.ask(method, "/delivered/" + path, fields).status == status) }
        // The script removes files older than 30 days.
        let clean = folder.file("clean.sh")
        try write(
            RecipeBlock.text(
                "directory",
                "clean.sh",
                ["/var/spool/spoolgate-delivered": files]
            ),
            to: URL(filePath: clean)
        )
        for (age, left) in [("29 days", 3), ("31 days", 0)] {
            let all = try FileManager.default.contentsOfDirectory(atPath: files)
            _ = try Command(
                "/usr/bin/touch",
                ["-d", age + " ago"] + all.map { files + "/" + $0 }
            )
            #expect(try Command("/bin/sh", [clean]).status == 0)
            #expect(try FileManager.default.contentsOfDirectory(atPath: files).count == left)
        }
    }

    @Test(
        "a bucket",
        .enabled(if: ObjectGateway.isInstalled, "Ceph's radosgw, mon and osd are not installed")
    )
    func bucket() throws {
        let (folder, key, _) = try handover()
        try write("\(ObjectGateway.keyID)\n\(ObjectGateway.secret)\n", to: URL(filePath: key))
        try #require(chmod(key, 0o600) == 0)
        let bucket = try ObjectGateway().bucket("drop")
        let sandbox = try Sandbox(
            upstream: "s3:\(bucket.url)/incoming",
            routeSettings: RecipeBlock.route(
                "bucket",
                "default",
                ["/etc/spoolgate/s3.key": key]
            )
        )
        let (_, bytes) = try sandbox.randomFile(1 << 20)
        #expect(try upload(bytes, to: "/files/film.mp4", in: sandbox).status == 201)
        let keys = try bucket.keys()
        #expect(keys.count == 1 && keys[0].hasSuffix("-film.mp4"))
        #expect(try bucket.content(try #require(keys.first)) == bytes)
        _ = folder
    }

    @Test(
        "Apache's WebDAV",
        .enabled(if: Command.find("apache2") != nil, "apache2 is not installed")
    )
    func apache() throws {
        let folder = try ScratchDirectory()
        let port = try FreePort.take(1)[0]
        let files = folder.file("root/files")
        try FileManager.default.createDirectory(
            atPath: files,
            withIntermediateDirectories: true
        )
        try #require(chmod(files, 0o777) == 0 && chmod(folder.path, 0o777) == 0)
        let modules = ["mpm_event", "authz_core", "dav", "dav_fs"].map { name in
            "LoadModule \(name)_module /usr/lib/apache2/modules/mod_\(name).so\n"
        }
        let directory = try RecipeBlock.text("apache", "apache.conf", ["/srv/files": files])
        try write(
            """
            \(modules.joined())
            ServerName localhost
            Listen 127.0.0.1:\(port)
            PidFile \(folder.file("pid"))
            ErrorLog \(folder.file("error.log"))
            DavLockDB \(folder.file("locks"))
            \(getuid() == 0 ? "User www-data\nGroup www-data" : "")
            DocumentRoot "\(folder.file("root"))"
            \(directory)
            """,
            to: URL(filePath: folder.file("apache.conf"))
        )
        let server = try Daemon(
            Command.find("apache2") ?? "apache2",
            ["-X", "-f", folder.file("apache.conf")],
            log: URL(filePath: folder.file("apache.out"))
        )
        defer { server.signal(SIGKILL) }
        try eventually("Apache listens") { (try? WireClient(port: port)) != nil }
        let sandbox = try Sandbox(upstream: "http://127.0.0.1:\(port)")
        let (file, bytes) = try sandbox.randomFile(2 << 20)
        let url = "http://127.0.0.1:\(sandbox.port)/files/film.mp4"
        #expect(try sandbox.curl(["-f", "-T", file.path(), url]).status == 0)
        #expect(try Data(contentsOf: URL(filePath: files + "/film.mp4")) == bytes)
        // The Destination has the client's scheme, but Apache requires its own.
        for (number, base) in [
            "http://127.0.0.1:\(sandbox.port)", "https://127.0.0.1:\(sandbox.tlsPort)",
        ].enumerated() {
            for (method, from, to) in [
                ("COPY", "film.mp4", "copy\(number)"), ("MOVE", "copy\(number)", "moved\(number)"),
            ] {
                let sent = try sandbox.curl([
                    "-k", "-X", method, "-H", "Destination: \(base)/files/\(to)", "-o", "/dev/null",
                    "-w", "%{http_code}", "\(base)/files/\(from)",
                ])
                #expect(sent.output == "201", "\(method) \(base)")
            }
            #expect(try Data(contentsOf: URL(filePath: "\(files)/moved\(number)")) == bytes)
        }
    }

    // MARK: Web servers and clients

    @Test("a curl script continues where it was cut")
    func curlScript() throws {
        let port = try FreePort.take(1)[0]
        let proxy = try CuttingProxy(to: port)
        let origin = "http://127.0.0.1:\(proxy.port)"
        let sandbox = try Sandbox(origin: origin, port: port)
        let script = sandbox.directory.appending(path: "upload.sh")
        try write(RecipeBlock.text("curl", "upload.sh"), to: script)
        let (file, bytes) = try sandbox.randomFile(6 << 20, "film one.mp4")
        proxy.hold(at: 2 << 20)
        let log = sandbox.directory.appending(path: "upload.log")
        let client = try Daemon(
            "/bin/sh",
            [
                script.path(percentEncoded: false), file.path(percentEncoded: false),
                origin + "/files/film",
            ],
            log: log
        )
        try eventually("two megabytes were received") { try sandbox.spooledOffset() > 1 << 20 }
        proxy.cut()
        proxy.hold(at: nil)
        proxy.restore()
        #expect(client.wait() == 0, "\((try? String(contentsOf: log, encoding: .utf8)) ?? "")")
        #expect(try sandbox.delivered().map { try Data(contentsOf: $0) } == [bytes])
    }

    @Test("that script ends with a one-sentence reason")
    func curlScriptEnds() throws {
        let why = "It is unknown whether the upload was processed."
        let gateway = try LoopbackOrigin { connection in
            while let request = try connection.receiveRequest() {
                let host = request.values("Host").first ?? ""
                if request.method == "POST" {
                    try connection.response(
                        "201 Created",
                        fields: ["Location: http://\(host)/files/upload-resource/1"]
                    )
                } else {
                    try connection.response(
                        "410 Gone",
                        fields: ["Content-Type: application/problem+json"],
                        content: #"{"title":"x","status":410,"detail":"\#(why)","code":"y"}"#,
                        hasContent: request.method != "HEAD"
                    )
                }
            }
        }
        let folder = try ScratchDirectory()
        let script = URL(filePath: folder.file("upload.sh"))
        try write(RecipeBlock.text("curl", "upload.sh"), to: script)
        try write("content", to: URL(filePath: folder.file("a.txt")))
        let said = try Command(
            "/bin/sh",
            [script.path(), folder.file("a.txt"), gateway.base + "/files/a.txt"]
        )
        #expect(said.status == 1)
        #expect(said.output == "")
        let resource = gateway.base + "/files/upload-resource/1"
        #expect(said.errors == "retrieving the offset of \(resource): 410 \(why)\n")
    }

    @Test(
        "that script treats a form's redirect as success, and prints its location",
        arguments: [(302, 0), (303, 0), (301, 1), (422, 1)] as [(Int, Int32)]
    )
    func curlScriptRedirected(status: Int, code: Int32) throws {
        let application = try LoopbackOrigin { connection in
            while try connection.receiveRequest() != nil {
                try connection.response("\(status) Yes", fields: ["Location: /films/1"])
            }
        }
        let sandbox = try Sandbox(upstream: application.base)
        let script = sandbox.directory.appending(path: "upload.sh")
        try write(RecipeBlock.text("curl", "upload.sh"), to: script)
        let file = try sandbox.randomFile(200_000).url.path()
        let target = "http://127.0.0.1:\(sandbox.port)/files/film"
        let said = try Command("/bin/sh", [script.path(), file, target])
        #expect(said.status == code, "\(said)")
        let place = "the server accepted \(file) and redirects to /films/1\n"
        #expect(said.errors == (code == 0 ? place : ""), "\(said.errors)")
    }

    @Test("two routes, each with a location")
    func routes() throws {
        let upstream = try RealUpstream()
        let folder = try ScratchDirectory()
        let locations = try RecipeBlock.text(
            "routes",
            "nginx",
            [
                "/usr/share/spoolgate/nginx/pass*": "pass*",
                "/usr/share/spoolgate/nginx/location*": "location*",
            ]
        )
        let photos = try RecipeBlock.route("routes", "photos")
        let sandbox = try Sandbox(
            routes: [
                "photos": ["upstream: \(upstream.url)"] + photos,
                "archive": RecipeBlock.route("routes", "archive", ["/srv/archive": folder.path]),
            ],
            front: .nginxServing(locations)
        )
        let (_, bytes) = try sandbox.randomFile(1 << 20)
        let resource = try sandbox.ask(
            "POST",
            "/archive/tape",
            ["Upload-Complete: ?1"],
            content: bytes
        )
        #expect(resource.status == 201)
        let names = folder.names.filter { !$0.hasSuffix(".json") && !$0.hasPrefix(".") }
        try #require(names.count == 1)
        #expect(try Data(contentsOf: URL(filePath: folder.file(names[0]))) == bytes)
        let large = try sandbox.open(
            "POST",
            "/photos/p",
            ["Upload-Complete: ?1", "Expect: 100-continue"],
            length: 200 << 20
        )
        #expect(try large.read().status == 413)
        #expect(try sandbox.ask("GET", "/photos/none").status == 404)
    }
}
