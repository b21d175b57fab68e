// Common mistakes in a real nginx's configuration, and the log messages about them.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite(
    "Mistakes in the web server's configuration",
    .enabled(if: Command.find("nginx") != nil, "nginx is not installed")
)
struct FrontFaultTests {
    private func lines(_ message: String, _ sandbox: Sandbox) -> [Substring] {
        sandbox.log.split(separator: "\n").filter { $0.contains("msg=\"\(message)\"") }
    }

    private func put(_ size: Int, _ sandbox: Sandbox) throws -> WireClient.Answer {
        try sandbox.ask("PUT", "/files/a.bin", content: Data(repeating: 7, count: size))
    }

    @Test("an nginx that buffers uploads is logged with the directive that stops it")
    func buffering() throws {
        let sandbox = try Sandbox(front: .nginxMistaken(.buffering))
        // nginx writes content larger than `client_body_buffer_size` to a file.
        for _ in 0..<3 { #expect(try put(3 << 20, sandbox).status == 201) }
        let told = lines("request buffering is enabled", sandbox)
        #expect(told.count == 1, "\(sandbox.log)")
        let line = try #require(told.first)
        #expect(line.contains(" level=warning ") && line.contains(" route=default"))
        #expect(line.contains(" directive=\"fastcgi_request_buffering off;\""))
    }

    @Test(
        "an nginx with the distribution's parameters, which buffers, is logged with the missing include",
        .enabled(if: FileManager.default.fileExists(atPath: "/etc/nginx/fastcgi_params"))
    )
    func distributionsParameters() throws {
        let sandbox = try Sandbox(front: .nginxMistaken(.distributionsParameters))
        for _ in 0..<3 { #expect(try put(3 << 20, sandbox).status == 201) }
        let told = lines("request buffering cannot be detected", sandbox)
        #expect(told.count == 1, "\(sandbox.log)")
        #expect(told.first?.contains("location*.conf;") == true)
    }

    @Test("an invalid SPOOLGATE_INTERIM gets 500 and an error in the log")
    func wrongInterim() throws {
        let sandbox = try Sandbox(front: .nginxMistaken(.wrongInterim))
        for _ in 0..<3 { #expect(try put(5, sandbox).status == 500) }
        let told = lines("web server misconfigured", sandbox)
        #expect(told.count == 1, "\(sandbox.log)")
        #expect(told.first?.contains("SPOOLGATE_INTERIM") == true)
    }

    @Test("a streaming nginx as shipped has no fault")
    func shipped() throws {
        // Few enough for the lowest limit of open files, which has its own warning.
        let sandbox = try Sandbox(extra: ["threads: {maximum: 64}"])
        #expect(try put(3 << 20, sandbox).status == 201)
        #expect(!sandbox.log.contains("msg=\"request buffering "), "\(sandbox.log)")
        let lines = sandbox.log.split(separator: "\n")
        #expect(!lines.contains { $0.contains(" level=warning ") || $0.contains(" level=error ") })
    }

    @Test(
        "missing parameters get 500 and one logged error with the fix, not a line for each request"
    )
    func noParameters() throws {
        let sandbox = try Sandbox(front: .nginxMistaken(.noParameters))
        for _ in 0..<3 {
            let response = try put(5, sandbox)
            #expect(response.status == 500)
            #expect(response.text.contains("REQUEST_METHOD"))
        }
        let told = lines("web server misconfigured", sandbox)
        #expect(told.count == 1, "\(sandbox.log)")
        let line = try #require(told.first)
        #expect(line.contains(" level=error ") && line.contains(" requests=1 "))
        #expect(line.contains("REQUEST_METHOD") && line.contains("params.conf"))
    }

    @Test("a missing origin is logged once, and uploads continue")
    func noOrigin() throws {
        let sandbox = try Sandbox(front: .nginxMistaken(.noOrigin))
        let port = sandbox.port
        let fields = ["Upload-Complete: ?0"]
        let responses = Parallel.run(8) { _ in
            try WireClient(port: port).ask("POST", "/files/a.bin", fields, content: Data())
        }
        for response in responses {
            #expect(try response.get()["location"]?.hasPrefix("/files/") == true)
        }
        let told = lines("SPOOLGATE_ORIGIN is not set", sandbox)
        #expect(told.count == 1, "\(sandbox.log)")
        #expect(told.first?.contains(" directive=\"fastcgi_param SPOOLGATE_ORIGIN ") == true)
    }
}
