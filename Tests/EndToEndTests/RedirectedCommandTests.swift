// A redirect is not success for the client's commands, and no file is lost.

import Foundation
import SpoolgateTestSupport
import Testing

/// Redirects each request below `/CODE/` with that status.
private final class RedirectingNginx {
    static let place = "https://moved.example/new"
    let base: String
    private let directory: URL
    private let server: Daemon

    init() throws {
        let port = try FreePort.take(1)[0]
        base = "http://127.0.0.1:\(port)"
        directory = FileManager.default.temporaryDirectory
            .appending(path: "redirects-\(UUID().uuidString.prefix(8))")
        try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
        let path = directory.path()
        let locations = [301, 302, 303, 307, 308]
            .map { "location /\($0)/ { return \($0) \(Self.place); }" }.joined(separator: "\n")
        try """
        pid \(path)/nginx.pid;
        error_log \(path)/error.log warn;
        events { worker_connections 256; }
        http {
            access_log off;
            client_body_temp_path \(path)/body;
            proxy_temp_path \(path)/proxy;
            fastcgi_temp_path \(path)/fastcgi;
            uwsgi_temp_path \(path)/uwsgi;
            scgi_temp_path \(path)/scgi;
            client_max_body_size 0;
            server {
                listen 127.0.0.1:\(port);
                \(locations)
            }
        }
        """.write(toFile: path + "/nginx.conf", atomically: true, encoding: .utf8)
        server = try Daemon(
            Command.find("nginx") ?? "nginx",
            ["-e", path + "/error.log", "-c", path + "/nginx.conf", "-g", "daemon off;"],
            log: directory.appending(path: "nginx.out")
        )
        try eventually("nginx listens") { (try? WireClient(port: port)) != nil }
    }

    deinit {
        server.signal(SIGTERM)
        _ = server.wait()
        try? FileManager.default.removeItem(at: directory)
    }
}

@Suite("The client's commands and redirects")
struct RedirectedCommandTests {
    private static let codes = [301, 302, 303, 307, 308]

    @Test(
        "an nginx that redirects has accepted nothing, except for 302 and 303 to a complete POST",
        arguments: [["POST"], ["PUT"], ["POST", "--creation", "careful"]]
    )
    func upload(options: [String]) throws {
        let nginx = try RedirectingNginx()
        let world = try UploadCommandWorld()
        for (size, isSmall) in [(1_000, true), (2 << 20, false)] {
            for code in Self.codes {
                let file = try world.sandbox.randomFile(size, "\(code).bin")
                let url = "\(nginx.base)/\(code)/a"
                let line =
                    "\(UploadCommandWorld.program) -X \(options.joined(separator: " ")) "
                    + "\(file.url.path()) \(url) && rm \(file.url.path())"
                let command = try Command("/bin/sh", ["-c", line], environment: world.environment)
                let isTaken = isSmall && options == ["POST"] && [302, 303].contains(code)
                let words = "\(options) \(size) \(code): \(command.errors)"
                #expect(command.status == (isTaken ? 0 : 1), "\(words)")
                #expect(command.errors.contains(RedirectingNginx.place), "\(words)")
                let isThere = FileManager.default.fileExists(atPath: file.url.path())
                #expect(isThere == !isTaken, "\(words)")
                #expect(world.states().count { $0.contains(url) } == (isTaken ? 0 : 1), "\(words)")
                guard isThere else { continue }
                let name = "\(options.count)-\(options[0])-\(size)-\(code).bin"
                let right = try world.run(file.url.path(), world.url(name))
                #expect(right.status == 0, "\(right.errors)")
                #expect(try world.delivered(name) == [file.bytes])
            }
        }
    }

    @Test("a redirected upload stays at its server and can be resumed")
    func middle() throws {
        let world = try UploadCommandWorld()
        let moved = try LoopbackOrigin { connection in
            while var request = try connection.receiveHead() {
                let isCreation = request.method == "POST"
                try connection.receiveContent(of: &request)
                let fields =
                    isCreation
                    ? ["Location: /u/1", "Upload-Offset: 0", "Upload-Complete: ?0"]
                    : ["Location: /login"]
                try connection.response(
                    isCreation ? "201 Created" : "307 Temporary Redirect",
                    fields: fields,
                    hasContent: request.method != "HEAD"
                )
            }
        }
        let file = try world.sandbox.randomFile(2 << 20)
        let url = moved.base + "/f"
        // The append, then the offset retrieval.
        for request in ["PATCH", "HEAD"] {
            let command = try world.run(file.url.path(), url)
            #expect(command.status == 1)
            #expect(command.errors.contains("by \(request) \(moved.base)/u/1"), "\(command.errors)")
            #expect(command.errors.contains("to \(moved.base)/login"), "\(command.errors)")
            #expect(world.states().contains { $0.contains("\ntoken: ") })
            #expect(try world.run("--list").output.contains("can be resumed"))
        }
        let cancelled = try world.run("--cancel", file.url.path(), url)
        #expect(cancelled.status == 1)
        #expect(cancelled.errors.contains("and the upload remains"), "\(cancelled.errors)")
        #expect(world.states().contains { $0.contains("\ntoken: ") })
    }

    @Test("an application's 303 behind the gateway is its response, and its location is printed")
    func application() throws {
        let origin = try LoopbackOrigin { connection in
            while try connection.receiveRequest() != nil {
                try connection.response(
                    "303 See Other",
                    fields: ["Location: /films/7"],
                    content: "ok"
                )
            }
        }
        let sandbox = try Sandbox(upstream: origin.base, front: .nginxWithModule)
        for (size, method) in [(1_000, "POST"), (2 << 20, "POST"), (2 << 20, "PUT")] {
            let file = try sandbox.randomFile(size)
            let command = try Command(
                UploadCommandWorld.program,
                ["-X", method, file.url.path(), "http://127.0.0.1:\(sandbox.port)/files/a"],
                environment: [
                    "XDG_STATE_HOME": sandbox.directory.appending(path: "state").path(),
                    "no_proxy": "*",
                ]
            )
            #expect(command.status == 0, "\(command.errors)")
            #expect(command.output == "ok")
            #expect(command.errors.contains("http://127.0.0.1:\(sandbox.port)/films/7"))
        }
        #expect(origin.requests.count == 3)
    }

    @Test("a redirected download writes no file, and keeps the partial file")
    func download() throws {
        let nginx = try RedirectingNginx()
        let world = try UploadCommandWorld()
        for code in Self.codes {
            let path = world.file("got-\(code)")
            let command = try Command(
                world.file("spoolgate-download"),
                ["\(nginx.base)/\(code)/a", path],
                environment: world.environment
            )
            #expect(command.status == 1)
            #expect(command.errors.contains(RedirectingNginx.place), "\(command.errors)")
            #expect(!FileManager.default.fileExists(atPath: path))
        }
    }
}
