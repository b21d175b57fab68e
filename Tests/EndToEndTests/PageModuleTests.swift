// The page's module alone, against servers that answer as they are told: the situations of an upload that the
// gateway brings about seldom or never.

import Foundation
import SpoolgatePosix
import SpoolgateTestSupport
import Testing

@Suite(
    "The page's module in a browser",
    .serialized,
    .enabled(if: Engine.chromium.isInstalled, Engine.chromium.missing)
)
struct PageModuleTests {
    /// What a server answers with; nil: nothing, ever.
    private typealias Answer = (status: String, fields: [String], content: String)?
    /// A request, and how many of its method came before it.
    private typealias Script = @Sendable (LoopbackOrigin.Request, Int) -> Answer

    /// Content of 1000 bytes that is uploaded from a page of the server's own.
    private final class Upload {
        let server: LoopbackOrigin
        let browser: Browser

        init(_ script: @escaping Script) throws {
            let counts = Monitor<[String: Int]>([:])
            server = try LoopbackOrigin { connection in
                while let request = try connection.receiveRequest() {
                    guard request.target.hasPrefix("/files/") else {
                        try Self.serveModule(request, connection)
                        continue
                    }
                    let count = counts.update { counts in
                        defer { counts[request.method, default: 0] += 1 }
                        return counts[request.method, default: 0]
                    }
                    guard let answer = script(request, count) else {
                        return connection.waitForEnd()
                    }
                    try connection.answer(
                        answer.status,
                        fields: answer.fields,
                        content: answer.content,
                        hasContent: request.method != "HEAD"
                    )
                }
            }
            browser = try Browser()
            try browser.open("http://localhost:\(server.port)/page")
        }

        private static func serveModule(
            _ request: LoopbackOrigin.Request,
            _ connection: OriginConnection
        ) throws {
            guard request.target == "/module.js" else {
                let fields = ["Content-Type: text/html"]
                return try connection.answer("200 OK", fields: fields, content: "<!doctype html>")
            }
            let file = Sandbox.root.appending(path: "nginx/demo/resumable-upload.js")
            try connection.answer(
                "200 OK",
                fields: ["Content-Type: text/javascript"],
                content: String(contentsOf: file, encoding: .utf8)
            )
        }

        /// Sends it; the text of the answer or the code of the error, then every state, then the last
        /// progress.
        func send(_ options: String = "") throws -> (
            end: String, states: [String], loaded: Int, sent: Int
        ) {
            let seen = try browser.run(
                """
                const { ResumableUpload } = await import('/module.js')
                const file = new File(['x'.repeat(1000)], 'x.txt', { type: 'text/plain', lastModified: 1 })
                const upload = new ResumableUpload(file, { endpoint: '/files/', retryDelays: [0, 10, 10], \(options) })
                const states = [], last = {}
                upload.addEventListener('state', ({ detail }) => states.push(detail.state))
                upload.addEventListener('progress', ({ detail }) => Object.assign(last, detail))
                const end = await upload.start().then((answer) => answer.text, (error) => error.code)
                return { end, states, loaded: last.loaded ?? 0, sent: last.sent ?? 0 }
                """
            )
            let object = seen as? [String: Any] ?? [:]
            return (
                object["end"] as? String ?? "", object["states"] as? [String] ?? [],
                object["loaded"] as? Int ?? 0, object["sent"] as? Int ?? 0
            )
        }

        /// The methods of what the server was asked for uploads, in order, but for questions after states.
        var methods: [String] { requests.map(\.method).filter { $0 != "GET" } }

        var requests: [LoopbackOrigin.Request] {
            server.requests.filter { $0.target.hasPrefix("/files/") }
        }
    }

    private static let created: Answer = ("201 Created", ["Location: /files/u"], "")
    private static let done: Answer = ("200 OK", ["Upload-Complete: ?1"], "done")

    private static func isAt(_ offset: Int, _ fields: String...) -> Answer {
        ("204 No Content", ["Upload-Offset: \(offset)"] + fields, "")
    }

    /// A server that creates, tells offset 400, and has no status resource.
    private static func usual(_ request: LoopbackOrigin.Request) -> Answer {
        switch request.method {
        case "POST": created
        case "HEAD": isAt(400, "Upload-Length: 1000")
        case "PATCH": done
        default: ("404 Not Found", [], "")
        }
    }

    @Test("what a creation and an append say, and to which of them the options' fields go")
    func fields() throws {
        let upload = try Upload { request, _ in Self.usual(request) }
        let first = try upload.send(
            "version: 6, method: 'PUT', fields: async () => ({ Authorization: 'Bearer x', 'Content-Type': 'a/b' })"
        )
        #expect(first.end == "server", "this server creates nothing by PUT")
        let second = try upload.send("fields: { 'X-Album': '7', 'Content-Language': 'de' }")
        #expect(second.end == "done")
        #expect(second.states == ["running", "done"])
        let put = try #require(upload.requests.first)
        #expect(put.values("Upload-Draft-Interop-Version") == ["6"])
        #expect(put.values("Authorization") == ["Bearer x"])
        #expect(put.values("Content-Type") == ["a/b"])
        let post = try #require(upload.requests.first { $0.method == "POST" })
        #expect(post.values("Upload-Complete") == ["?0"])
        #expect(post.values("Upload-Length") == ["1000"])
        #expect(post.values("Content-Type") == ["text/plain"])
        #expect(post.values("Content-Disposition") == ["attachment; filename*=UTF-8''x.txt"])
        #expect(post.values("Content-Language") == ["de"])
        #expect(post.values("Upload-Draft-Interop-Version") == [])
        let patch = try #require(upload.requests.last { $0.method == "PATCH" })
        #expect(patch.values("Upload-Complete") == ["?1"])
        #expect(patch.values("Upload-Offset") == ["0"])
        #expect(patch.values("Content-Type") == ["application/partial-upload"])
        #expect(patch.values("X-Album") == ["7"])
        #expect(patch.values("Content-Language") == [])
        #expect(patch.contentLength == 1000)
    }

    @Test(
        "an answer that passes is waited out, and the upload goes on from the server's offset",
        arguments: ["409", "423", "429", "503"]
    )
    func passing(status: String) throws {
        let upload = try Upload { request, count in
            request.method == "PATCH" && count == 0
                ? ("\(status) X", ["Upload-Complete: ?0", "Retry-After: 1"], "")
                : Self.usual(request)
        }
        let start = ContinuousClock.now
        let sent = try upload.send()
        #expect(ContinuousClock.now - start >= .seconds(1), "as Retry-After says")
        #expect(sent.end == "done")
        #expect(sent.states == ["running", "waiting", "running", "done"])
        #expect(upload.methods == ["POST", "PATCH", "HEAD", "PATCH"])
        #expect(upload.requests.last { $0.method == "PATCH" }?.contentLength == 600)
    }

    @Test("the application's own answer is final, whatever its status", arguments: ["409", "503"])
    func final(status: String) throws {
        let upload = try Upload { request, _ in
            request.method == "PATCH"
                ? ("\(status) X", ["Upload-Complete: ?1"], "no") : Self.usual(request)
        }
        #expect(try upload.send().end == "refused")
        #expect(upload.methods == ["POST", "PATCH"])
        // And forgotten: the next one begins anew.
        #expect(try upload.send().end == "refused")
        #expect(upload.methods == ["POST", "PATCH", "POST", "PATCH"])
    }

    @Test("it tries without end, until a person stops it")
    func endless() throws {
        let upload = try Upload { request, count in
            request.method == "PATCH" && count < 40 ? ("503 X", [], "") : Self.usual(request)
        }
        #expect(try upload.send().end == "done")
        let stopped = try Upload { request, _ in
            request.method == "PATCH" ? ("503 X", [], "") : Self.usual(request)
        }
        let stop =
            "onstate: null }); let left = 30; upload.addEventListener('state', "
            + "({ detail }) => { if (detail.state === 'waiting' && --left === 0) upload.pause() }); ({"
        #expect(try stopped.send(stop).end == "paused")
    }

    @Test("retryNow begins the next attempt at once")
    func retryNow() throws {
        let upload = try Upload { request, count in
            request.method == "PATCH" && count < 3 ? ("503 X", [], "") : Self.usual(request)
        }
        // Longer than a test waits.
        let now =
            "retryDelays: [3e6] }); upload.addEventListener('state', "
            + "({ detail }) => { if (detail.state === 'waiting') setTimeout(() => upload.retryNow()) }); ({"
        #expect(try upload.send(now).end == "done")
    }

    @Test("where locks and storage are blocked it is sent without them")
    func blocked() throws {
        let upload = try Upload { request, _ in Self.usual(request) }
        try upload.browser.run(
            """
            const refuse = () => { throw new DOMException('blocked', 'SecurityError') }
            Object.defineProperty(window, 'localStorage', { get: refuse })
            navigator.locks.request = async () => refuse()
            """
        )
        #expect(try upload.send().end == "done")
    }

    @Test("fields that cannot be had are asked for again; after 401 they are asked for anew once")
    func fieldsAway() throws {
        let upload = try Upload { request, _ in
            request.method == "POST" && request.values("Authorization") != ["Bearer 3"]
                ? ("401 X", [], "") : Self.usual(request)
        }
        let some =
            "fields: (() => { let n = 0; return async () => { n += 1; "
            + "if (n === 1) throw new TypeError('Failed to fetch'); "
            + "return { authorization: `Bearer ${Math.min(n, 3)}` } } })()"
        let sent = try upload.send(some)
        #expect(sent.end == "done")
        #expect(sent.states.filter { $0 == "waiting" }.count == 2)
        #expect(
            try upload.send("fields: async () => ({ authorization: 'Bearer 9' })").end == "server"
        )
        #expect(upload.methods.filter { $0 == "POST" }.count == 4)
    }

    @Test("an upload that the server has lost is created anew", arguments: ["403", "404", "410"])
    func lost(status: String) throws {
        let upload = try Upload { request, count in
            switch (request.method, count) {
            case ("PATCH", 0): ("404 Not Found", ["Upload-Complete: ?0"], "")
            case ("HEAD", _): ("\(status) X", [], "")
            default: Self.usual(request)
            }
        }
        #expect(try upload.send().end == "done")
        #expect(upload.methods == ["POST", "PATCH", "HEAD", "POST", "PATCH"])
    }

    @Test("a file of another length than the server knows is not mixed with it")
    func changed() throws {
        let upload = try Upload { request, _ in
            request.method == "HEAD" ? Self.isAt(4, "Upload-Length: 9") : Self.usual(request)
        }
        #expect(try upload.send("url: '/files/u'").end == "changed")
        #expect(upload.methods == ["HEAD"])
    }

    @Test("a request that was too large is sent in pieces")
    func tooLarge() throws {
        let upload = try Upload { request, _ in
            guard request.method == "PATCH" else { return Self.usual(request) }
            let offset = request.values("Upload-Offset").first.flatMap { Int($0) } ?? 0
            if request.contentLength > 300 {
                let fields = [
                    "Upload-Limit: max-size=9, max-append-size=300", "Upload-Complete: ?0",
                ]
                return ("413 Content Too Large", fields, "")
            }
            let end = offset + request.contentLength
            return end == 1000 ? Self.done : Self.isAt(end, "Upload-Complete: ?0")
        }
        #expect(try upload.send().end == "done")
        let sizes = upload.requests.filter { $0.method == "PATCH" }.map(\.contentLength)
        #expect(sizes == [1000, 300, 300, 300, 100])
    }

    @Test("of an upload that is whole the answer is fetched")
    func whole() throws {
        let upload = try Upload { request, _ in
            request.method == "HEAD" ? Self.isAt(1000) : Self.usual(request)
        }
        #expect(try upload.send("url: '/files/u'").end == "done")
        #expect(upload.methods == ["HEAD", "PATCH"])
        #expect(upload.requests.last { $0.method == "PATCH" }?.contentLength == 0)
    }

    @Test("a connection on which nothing moves is given up")
    func stalled() throws {
        let upload = try Upload { request, count in
            // The application is waited for where the server says that it works; here it says nothing.
            if request.method == "HEAD", count == 0 { return nil }
            return Self.usual(request)
        }
        let sent = try upload.send("url: '/files/u', stallTimeout: 300")
        #expect(sent.end == "done")
        #expect(sent.states == ["running", "waiting", "running", "done"])
    }

    @Test("what is received is what the linked status resource says, while the application works")
    func status() throws {
        let isTold = Gate()
        let upload = try Upload { request, count in
            switch request.method {
            case "POST":
                return (
                    "201 Created", ["Location: /files/u", "Link: </files/s?u>; rel=\"status\""], ""
                )
            case "GET":
                // The one before was answered.
                if count > 1 { isTold.open() }
                return ("200 OK", [], #"{"offset": \#(count == 0 ? 250 : 1000)}"#)
            default:
                isTold.pass()
                return ("422 X", ["Upload-Complete: ?1"], "")
            }
        }
        let sent = try upload.send()
        #expect(sent.end == "refused")
        #expect(sent.loaded == 1000)
        let targets = upload.requests.filter { $0.method == "GET" }.map(\.target)
        #expect(targets.count >= 2 && targets.allSatisfy { $0 == "/files/s?u" })
    }

    @Test("where nothing takes uploads, it says so at once", arguments: ["404", "200"])
    func noUploads(status: String) throws {
        let upload = try Upload { _, _ in ("\(status) X", [], "") }
        #expect(try upload.send().end == "server")
        #expect(upload.methods == ["POST"])
    }
}
