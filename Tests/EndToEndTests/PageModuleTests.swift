// The page's module alone, against scripted responses that the gateway sends seldom or never.

import Foundation
import SpoolgatePosix
import SpoolgateTestSupport
import Testing

@Suite(
    "The page's module in a browser",
    .serialized,
    .enabled(if: Engine.chromium.isInstalled, Engine.chromium.missing),
    .sharedBrowser
)
struct PageModuleTests {
    /// A server's response; nil: it never responds.
    private typealias Answer = (status: String, fields: [String], content: String)?
    /// Responds to a request, given the number of earlier requests with its method.
    private typealias Script = @Sendable (LoopbackOrigin.Request, Int) -> Answer

    /// An upload of 1000 bytes from a page of the server's own, in the suite's browser.
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
                    guard let response = script(request, count) else {
                        return connection.waitForEnd()
                    }
                    try connection.response(
                        response.status,
                        fields: response.fields,
                        content: response.content,
                        hasContent: request.method != "HEAD"
                    )
                }
            }
            browser = try SharedBrowser.take()
            try browser.open("http://localhost:\(server.port)/page")
            // An earlier server may have had this port.
            try browser.run("localStorage.clear()")
        }

        private static func serveModule(
            _ request: LoopbackOrigin.Request,
            _ connection: OriginConnection
        ) throws {
            guard request.target == "/module.js" else {
                let fields = ["Content-Type: text/html"]
                return try connection.response("200 OK", fields: fields, content: "<!doctype html>")
            }
            let file = Sandbox.root.appending(path: "nginx/demo/resumable-upload.js")
            try connection.response(
                "200 OK",
                fields: ["Content-Type: text/javascript"],
                content: String(contentsOf: file, encoding: .utf8)
            )
        }

        /// Returns the response's text or the error's code, every state, and the last progress.
        func send(_ options: String = "", before script: String = "") throws -> (
            end: String, states: [String], loaded: Int, sent: Int
        ) {
            let seen = try browser.run(
                """
                const { ResumableUpload } = await import('/module.js')
                const file = new File(['x'.repeat(1000)], 'x.txt', { type: 'text/plain', lastModified: 1 })
                const upload = new ResumableUpload(file, { endpoint: '/files/', retryDelays: [0, 10, 10], \(options) })
                \(script)
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

        /// Runs a script with the module's classes and a file of 1000 bytes.
        func evaluate(_ script: String) throws -> Any {
            try browser.run(
                """
                const { ResumableUpload, UploadQueue, UploadError } = await import('/module.js')
                const make = (name) => new File(['x'.repeat(1000)], name, { type: 'text/plain', lastModified: 1 })
                const file = make('x.txt')
                \(script)
                """
            )
        }

        /// The methods of the requests, without those for the status.
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

    /// Creates uploads, reports offset 400, and has no status resource.
    private static func usual(_ request: LoopbackOrigin.Request) -> Answer {
        switch request.method {
        case "POST": created
        case "HEAD": isAt(400, "Upload-Length: 1000")
        case "PATCH": done
        default: ("404 Not Found", [], "")
        }
    }

    @Test(
        "the fields of a creation and of an append, and the requests that carry the options' fields"
    )
    func fields() throws {
        let upload = try Upload { request, _ in Self.usual(request) }
        let first = try upload.send(
            "version: 6, method: 'PUT', headers: async () => ({ Authorization: 'Bearer x', 'Content-Type': 'a/b' })"
        )
        #expect(first.end == "server", "this server refuses a creation by PUT")
        let second = try upload.send("headers: { 'X-Album': '7', 'Content-Language': 'de' }")
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
        "a temporary failure is waited out, and the upload continues at the server's offset",
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
        #expect(ContinuousClock.now - start >= .seconds(1), "Retry-After was ignored")
        #expect(sent.end == "done")
        #expect(sent.states == ["running", "waiting", "running", "done"])
        #expect(upload.methods == ["POST", "PATCH", "HEAD", "PATCH"])
        #expect(upload.requests.last { $0.method == "PATCH" }?.contentLength == 600)
    }

    @Test(
        "the application's own response is final with any status",
        arguments: ["409", "503"]
    )
    func final(status: String) throws {
        let upload = try Upload { request, _ in
            request.method == "PATCH"
                ? ("\(status) X", ["Upload-Complete: ?1"], "no") : Self.usual(request)
        }
        #expect(try upload.send().end == "refused")
        #expect(upload.methods == ["POST", "PATCH"])
        // The upload is also forgotten.
        #expect(try upload.send().end == "refused")
        #expect(upload.methods == ["POST", "PATCH", "POST", "PATCH"])
    }

    @Test("it retries without end until the user stops it")
    func endless() throws {
        let upload = try Upload { request, count in
            request.method == "PATCH" && count < 40 ? ("503 X", [], "") : Self.usual(request)
        }
        #expect(try upload.send().end == "done")
        let stopped = try Upload { request, _ in
            request.method == "PATCH" ? ("503 X", [], "") : Self.usual(request)
        }
        let stop = """
            let left = 30
            upload.onstate = ({ detail }) => { if (detail.state === 'waiting' && --left === 0) upload.pause() }
            """
        #expect(try stopped.send(before: stop).end == "paused")
    }

    @Test("retryNow starts the next attempt at once")
    func retryNow() throws {
        let upload = try Upload { request, count in
            request.method == "PATCH" && count < 3 ? ("503 X", [], "") : Self.usual(request)
        }
        // Longer than a test waits.
        let sent = try upload.send(
            "retryDelays: [3e6]",
            before: "upload.onstate = () => setTimeout(() => upload.retryNow())"
        )
        #expect(sent.end == "done")
    }

    @Test(
        "a waiting upload continues when the network is back or the page is visible again",
        arguments: ["online", "pageshow"]
    )
    func wakened(event: String) throws {
        let upload = try Upload { request, count in
            request.method == "PATCH" && count == 0 ? ("503 X", [], "") : Self.usual(request)
        }
        let wake = "upload.onstate = () => setTimeout(() => dispatchEvent(new Event('\(event)')))"
        #expect(try upload.send("retryDelays: [3e6]", before: wake).end == "done")
    }

    @Test("a browser that wrongly reports being offline still retries")
    func offline() throws {
        let upload = try Upload { request, count in
            request.method == "PATCH" && count < 3 ? ("503 X", [], "") : Self.usual(request)
        }
        let lie = "Object.defineProperty(navigator, 'onLine', { get: () => false })"
        #expect(try upload.send(before: lie).end == "done")
    }

    @Test("if locks and storage are blocked, uploads are sent without them")
    func blocked() throws {
        let upload = try Upload { request, _ in Self.usual(request) }
        try upload.browser.run(
            """
            const refuse = () => { throw new DOMException('blocked', 'SecurityError') }
            Object.defineProperty(window, 'localStorage', { get: refuse })
            navigator.locks.request = async () => refuse()
            """
        )
        #expect(try upload.send(before: "window.isRemembered = upload.isRemembered").end == "done")
        #expect(try upload.browser.run("return window.isRemembered") as? Bool == false)
    }

    @Test("if storage is full, the upload is sent and warns that a reload starts over")
    func full() throws {
        let upload = try Upload { request, _ in Self.usual(request) }
        let fill = """
            window.before = upload.isRemembered
            Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError') }
            upload.oncreated = () => { window.after = upload.isRemembered }
            """
        #expect(try upload.send(before: fill).end == "done")
        #expect(try upload.browser.run("return [before, after]") as? [Bool] == [true, false])
    }

    @Test(
        "headers that cannot be obtained are requested again; after 401 they are requested once more"
    )
    func headersAway() throws {
        let upload = try Upload { request, _ in
            request.method == "POST" && request.values("Authorization") != ["Bearer 3"]
                ? ("401 X", [], "") : Self.usual(request)
        }
        let some = """
            headers: (() => {
                let count = 0
                return async () => {
                    count += 1
                    if (count === 1) throw new TypeError('Failed to fetch')
                    return { authorization: `Bearer ${Math.min(count, 3)}` }
                }
            })()
            """
        let sent = try upload.send(some)
        #expect(sent.end == "done")
        #expect(sent.states == ["running", "waiting", "running", "done"])
        #expect(
            try upload.send("headers: async () => ({ authorization: 'Bearer 9' })").end == "server"
        )
        #expect(upload.methods.filter { $0 == "POST" }.count == 4)
        // A constant value is not requested again.
        #expect(try upload.send("headers: { authorization: 'Bearer 9' }").end == "server")
        #expect(upload.methods.filter { $0 == "POST" }.count == 5)
    }

    @Test("invalid options are refused at once")
    func options() throws {
        let upload = try Upload { request, _ in Self.usual(request) }
        let cases = [
            ("{}", "TypeError"), ("{ endpoint: '' }", "TypeError"), ("undefined", "TypeError"),
            ("{ endpoint: '/files/', fields: {} }", "TypeError"),
            ("{ endpoint: '/files/', chunksize: 5 }", "TypeError"),
            ("{ endpoint: '/files/', chunkSize: 0 }", "RangeError"),
            ("{ endpoint: '/files/', chunkSize: 1.5 }", "RangeError"),
            ("{ endpoint: '/files/', stallTimeout: 0 }", "RangeError"),
            ("{ endpoint: '/files/', retryDelays: [] }", "RangeError"),
            ("{ endpoint: '/files/', retryDelays: [-1] }", "RangeError"),
            ("{ endpoint: '/files/', version: 0 }", "RangeError"),
            ("{ endpoint: '/files/', headers: 'a: b' }", "TypeError"),
            ("{ endpoint: '/files/', metadata: { nam: 'a' } }", "TypeError"),
            ("{ endpoint: '/files/', shouldRetry: true }", "TypeError"),
            ("{ endpoint: '/files/', signal: {} }", "TypeError"),
            ("{ endpoint: '/files/', storage: {} }", "TypeError"),
            ("{ endpoint: '/files/', chunkSize: undefined, storage: null }", "none"),
        ]
        for (text, error) in cases {
            let script =
                "try { new ResumableUpload(file, \(text)); return 'none' } catch (error) { return error.name }"
            #expect(try upload.evaluate(script) as? String == error, "\(text)")
        }
    }

    @Test("a creation uses the options' file name and type")
    func metadata() throws {
        let upload = try Upload { request, _ in Self.usual(request) }
        #expect(try upload.send("metadata: { name: 'ä.png', type: 'image/png' }").end == "done")
        let post = try #require(upload.requests.first)
        #expect(post.values("Content-Disposition") == ["attachment; filename*=UTF-8''%C3%A4.png"])
        #expect(post.values("Content-Type") == ["image/png"])
    }

    @Test("the hooks see each request before it is sent and after its response")
    func hooks() throws {
        let upload = try Upload { request, _ in Self.usual(request) }
        let sent = try upload.send(
            """
            onBeforeRequest: async (request) => { request.headers.set('X-Signed', request.method) },
            onAfterResponse: ({ method }, { status }) => { (window.seen ??= []).push(method + status) },
            """
        )
        #expect(sent.end == "done")
        let own = upload.requests.filter { $0.method != "GET" }
        #expect(own.allSatisfy { $0.values("X-Signed") == [$0.method] })
        #expect(try upload.browser.run("return seen") as? [String] == ["POST201", "PATCH200"])
    }

    @Test("shouldRetry ends an upload that would continue, and continues one that would end")
    func shouldRetry() throws {
        let upload = try Upload { request, _ in
            request.method == "PATCH" ? ("503 X", [], "") : Self.usual(request)
        }
        #expect(try upload.send("shouldRetry: (error, attempt) => attempt < 3").end == "server")
        // The second failure follows progress: the server had 400 bytes.
        #expect(upload.methods.filter { $0 == "PATCH" }.count == 5)
        let closed = try Upload { request, count in
            request.method == "POST" && count < 2 ? ("403 X", [], "") : Self.usual(request)
        }
        let goOn = "shouldRetry: (error) => error.answer?.status === 403 || undefined"
        #expect(try closed.send(goOn).end == "done")
    }

    @Test("an aborted signal pauses the upload, which rejects with its reason")
    func signal() throws {
        let upload = try Upload { request, _ in
            request.method == "PATCH" ? nil : Self.usual(request)
        }
        let seen = try upload.evaluate(
            """
            const controller = new AbortController()
            const upload = new ResumableUpload(file, { endpoint: '/files/', signal: controller.signal })
            upload.oncreated = () => setTimeout(() => controller.abort(new RangeError('enough')), 50)
            const end = () => upload.start().catch((error) => error.message)
            return [await end(), upload.state, await end()]
            """
        )
        #expect(seen as? [String] == ["enough", "paused", "enough"])
    }

    @Test("a user's pause and cancel reject no promise that is not awaited")
    func unawaited() throws {
        let upload = try Upload { request, _ in
            request.method == "PATCH" ? nil : Self.usual(request)
        }
        let seen = try upload.evaluate(
            """
            const unhandled = []
            addEventListener('unhandledrejection', ({ reason }) => unhandled.push(reason.code))
            const created = (upload) => new Promise((resolve) => { upload.oncreated = resolve; upload.start() })
            const options = { endpoint: '/files/', storage: null }
            const uploads = ['a', 'b', 'c'].map((name) => new ResumableUpload(make(name), options))
            await created(uploads[0])
            uploads[0].pause()
            await created(uploads[1])
            await uploads[1].cancel()
            uploads[2].start()
            uploads[2].pause()
            await new Promise((resolve) => setTimeout(resolve, 200))
            return [unhandled.join(), ...uploads.map(({ state }) => state)]
            """
        )
        #expect(seen as? [String] == ["", "paused", "cancelled", "paused"])
        #expect(upload.methods.contains("DELETE"))
    }

    @Test("a pause or a cancellation during a creation leaves no second upload on the server")
    func stoppedInCreation() throws {
        let isStopped = Monitor(false)
        let upload = try Upload { request, _ in
            if request.method == "OPTIONS" { isStopped.update { $0 = true } }
            guard request.method == "POST" else { return Self.usual(request) }
            _ = isStopped.wait(until: .after(.seconds(60))) { $0 ? true : nil }
            return Self.usual(request)
        }
        let seen = try upload.evaluate(
            """
            const until = async (condition) => {
                while (!await condition()) await new Promise((resolve) => setTimeout(resolve, 10))
            }
            const { send } = XMLHttpRequest.prototype
            let sent = 0
            XMLHttpRequest.prototype.send = function(body) { sent += 1; send.call(this, body) }
            const [paused, cancelled] = ['a', 'b'].map((name) =>
                new ResumableUpload(make(name), { endpoint: '/files/', storage: null }))
            for (const upload of [paused, cancelled]) upload.start()
            await until(() => sent === 2)
            paused.pause()
            const end = cancelled.cancel()
            const next = paused.start()
            await fetch('/files/', { method: 'OPTIONS' })
            await end
            return [(await next).text, paused.state, cancelled.state]
            """
        )
        #expect(seen as? [String] == ["done", "done", "cancelled"])
        #expect(upload.methods.filter { $0 == "POST" }.count == 2)
        #expect(upload.methods.filter { $0 == "DELETE" }.count == 1)
    }

    @Test("a queue adds up its uploads, and can pause, resume and cancel them together")
    func queue() throws {
        // A pause may come before an append has left, so the page says which appends are held.
        let upload = try Upload { request, _ in
            request.values("X-Held") == ["true"] && request.method == "PATCH"
                ? nil : Self.usual(request)
        }
        let seen = try upload.evaluate(
            """
            let isHeld = true
            const queue = new UploadQueue(2)
            const states = [], told = []
            queue.onstate = ({ detail }) => states.push(detail.state)
            queue.onprogress = ({ detail }) => told.push(detail)
            const until = async (condition) => {
                while (!condition()) await new Promise((resolve) => setTimeout(resolve, 10))
            }
            const uploads = ['a', 'b', 'c', 'd'].map((name) => new ResumableUpload(make(name),
                { endpoint: '/files/', storage: null, headers: () => ({ 'X-Held': String(isHeld) }) }))
            for (const upload of uploads) queue.add(upload)
            const first = queue.totals
            await until(() => uploads[0].url && uploads[1].url)
            queue.pauseAll()
            const paused = queue.totals
            await uploads[3].cancel()
            isHeld = false
            queue.resumeAll()
            await until(() => queue.totals.done === 3)
            await until(() => told.at(-1)?.done === 3)
            const last = queue.totals
            return { first, paused, last, states: states.length }
            """
        )
        let object = try #require(seen as? [String: Any])
        func totals(_ name: String) -> [Int] {
            let totals = object[name] as? [String: Any] ?? [:]
            return ["count", "total", "loaded", "done", "failed", "paused", "active"].map {
                totals[$0] as? Int ?? -1
            }
        }
        #expect(totals("first") == [4, 4000, 0, 0, 0, 0, 4])
        #expect(totals("paused") == [4, 4000, 0, 0, 0, 4, 0])
        #expect(totals("last") == [3, 3000, 3000, 3, 0, 0, 0])
        #expect(object["states"] as? Int ?? 0 >= 14)
    }

    @Test("terminate removes an upload by its URL")
    func terminate() throws {
        let upload = try Upload { request, _ in
            guard request.method == "DELETE" else { return Self.usual(request) }
            return switch request.target {
            case "/files/gone": ("404 Not Found", [], "")
            case "/files/kept": ("403 Forbidden", [], "")
            default: ("204 No Content", [], "")
            }
        }
        let seen = try upload.evaluate(
            """
            const end = (url) => ResumableUpload.terminate(url, { headers: { 'X-Who': 'me' } })
                .then(() => 'removed', (error) => error.code)
            return [await end('/files/u'), await end('/files/gone'), await end('/files/kept')]
            """
        )
        #expect(seen as? [String] == ["removed", "removed", "server"])
        #expect(upload.requests.allSatisfy { $0.values("X-Who") == ["me"] })
    }

    @Test("broken entries in the storage hide no others, and are removed")
    func brokenEntries() throws {
        let upload = try Upload { request, _ in Self.usual(request) }
        let seen = try upload.evaluate(
            """
            const whole = { url: location.origin + '/files/u', endpoint: location.origin + '/files/', name: 'x',
                size: 1000, loaded: 400, time: 1 }
            const broken = ['{', 'null', '7', '"text"', '[]', '{}', { ...whole, url: 7 }, { ...whole, url: 'file:///x' },
                { ...whole, name: undefined }, { ...whole, size: 'a' }, { ...whole, loaded: undefined },
                { ...whole, expires: 2 }, { ...whole, endpoint: null }]
            for (const [place, entry] of [...broken, whole].entries()) {
                const text = typeof entry === 'string' ? entry : JSON.stringify(entry)
                localStorage.setItem('resumable-upload:' + place, text)
            }
            localStorage.setItem('other', '{')
            return [ResumableUpload.pending().map(({ fingerprint }) => fingerprint).join(), localStorage.length,
                broken.length]
            """
        )
        #expect(seen as? NSArray == ["13", 2, 13])
    }

    @Test("progress is reported about ten times a second at most, and the last report is not lost")
    func throttled() throws {
        let upload = try Upload { request, _ in
            guard request.method == "PATCH" else { return Self.usual(request) }
            let offset = request.values("Upload-Offset").first.flatMap { Int($0) } ?? 0
            return offset + 4 >= 1000 ? Self.done : Self.isAt(offset + 4, "Upload-Complete: ?0")
        }
        let count = """
            window.told = 0
            window.begin = performance.now()
            upload.onprogress = () => { told += 1; window.span = performance.now() - begin }
            """
        let sent = try upload.send("chunkSize: 4", before: count)
        #expect(sent.end == "done")
        #expect(sent.loaded == 1000)
        #expect(upload.methods.count == 251)
        let seen = try upload.browser.run("return [told, span]") as? [Double] ?? []
        // The first and last reports are not limited.
        #expect(seen[0] <= seen[1] / 100 + 2)
    }

    @Test(
        "a file that is truncated or replaced during the upload is not sent further",
        arguments: ["cut", "replaced"]
    )
    func otherFile(change: String) throws {
        let upload = try Upload { request, count in
            request.method == "PATCH" && count == 0 ? ("503 X", [], "") : Self.usual(request)
        }
        // As Firefox reads a file: without checking its time or size.
        let read = """
            const whole = { cut: 'x'.repeat(700), replaced: 'x'.repeat(990) + 'y'.repeat(10) }['\(change)']
            let other
            const { slice } = Blob.prototype
            file.slice = (begin, end) => slice.call(other ?? file, begin, end)
            upload.onstate = ({ detail }) => { if (detail.state === 'waiting') other = new File([whole], 'x.txt') }
            """
        #expect(try upload.send(before: read).end == "changed")
        #expect(upload.methods == ["POST", "PATCH"])
    }

    @Test(
        "a file that is unreadable for a moment, as after a page change and return, is sent further"
    )
    func unreadableForAMoment() throws {
        let upload = try Upload { request, count in
            request.method == "PATCH" && count == 0 ? ("503 X", [], "") : Self.usual(request)
        }
        let read = """
            const { slice } = Blob.prototype
            let isAway = false
            const gone = { arrayBuffer: async () => { throw new DOMException('gone', 'NotReadableError') } }
            file.slice = (...range) => isAway ? gone : slice.call(file, ...range)
            upload.onstate = ({ detail }) => {
                if (detail.state !== 'waiting') return
                isAway = true
                setTimeout(() => { isAway = false }, 700)
            }
            """
        #expect(try upload.send(before: read).end == "done")
        let lasting = read.replacing("setTimeout", with: "void")
        let again = try Upload { request, count in
            request.method == "PATCH" && count == 0 ? ("503 X", [], "") : Self.usual(request)
        }
        #expect(try again.send(before: lasting).end == "unreadable")
    }

    @Test("an upload that the server has lost is created again", arguments: ["403", "404", "410"])
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

    /// Begins an upload of `first`, and after a reload starts one of `second`.
    private static func afterReload(
        _ first: String,
        _ second: String,
        before change: String = ""
    ) throws -> (upload: Upload, pending: [String]) {
        let upload = try Upload { request, _ in
            request.method == "PATCH" && request.values("X-Held") == ["true"]
                ? nil : usual(request)
        }
        let start = "{ endpoint: '/files/', ...options, headers: { 'X-Held': String(isHeld) } }"
        let make = """
            const text = (bytes, name = 'x.txt', lastModified = 1) =>
                new File([bytes], name, { type: 'text/plain', lastModified })
            const x = 'x'.repeat(1000), y = 'y'.repeat(1000)
            """
        _ = try upload.evaluate(
            """
            \(make)
            const isHeld = true
            const [content, options] = \(first)
            const upload = new ResumableUpload(content, \(start))
            upload.start().catch(() => {})
            while (!upload.url) await new Promise((resolve) => setTimeout(resolve, 10))
            return 0
            """
        )
        try upload.browser.reload()
        let pending = try upload.evaluate(
            """
            \(make)
            \(change)
            const isHeld = false
            const [content, options] = \(second)
            await new ResumableUpload(content, \(start)).start()
            return ResumableUpload.pending().map(({ name, path }) => `${path}:${name}`)
            """
        )
        return (upload, pending as? [String] ?? [])
    }

    @Test(
        "after a reload, only the same file is continued; another one begins anew",
        arguments: [
            ("[text(x), {}]", "[text(x), {}]", true, []),
            ("[text(x), {}]", "[text(y), {}]", false, [":x.txt"]),
            ("[text(x), {}]", "[text(x, 'x.txt', 2), {}]", false, [":x.txt"]),
            ("[text(x), { path: 'a/x.txt' }]", "[text(x), { path: 'a/x.txt' }]", true, []),
            (
                "[text(x), { path: 'a/x.txt' }]", "[text(x), { path: 'b/x.txt' }]", false,
                ["a/x.txt:x.txt"]
            ),
            ("[text(x), { fingerprint: 'f' }]", "[text(x), { fingerprint: 'f' }]", true, []),
            ("[text(x), { fingerprint: 'f' }]", "[text(y), { fingerprint: 'f' }]", false, []),
            (
                "[new Blob([x]), { fingerprint: 'f' }]", "[new Blob([y]), { fingerprint: 'f' }]",
                false, []
            ),
        ]
    )
    func reloaded(first: String, second: String, continues: Bool, left: [String]) throws {
        let (upload, pending) = try Self.afterReload(first, second)
        let creations = upload.methods.filter { $0 == "POST" }.count
        #expect(creations == (continues ? 1 : 2))
        let last = upload.requests.last { $0.method == "PATCH" }
        #expect(last?.contentLength == (continues ? 600 : 1000))
        #expect(pending == left)
        // The part of a file that was replaced under its own fingerprint cannot be continued.
        let isReplaced = !continues && left.isEmpty
        try eventually("the replaced part is removed, and no other") {
            upload.methods.contains("DELETE") == isReplaced
        }
    }

    @Test("an upload that version 0.1.0 stored is not continued but removed")
    func storedBefore() throws {
        let forgetSample = """
            const [key] = Object.keys(localStorage)
            const { sample, path, ...entry } = JSON.parse(localStorage[key])
            localStorage.clear()
            const old = ['x.txt', 'text/plain', 1000, 1, location.origin + '/files/'].join('|')
            localStorage.setItem('resumable-upload:' + old, JSON.stringify(entry))
            """
        let (upload, pending) = try Self.afterReload(
            "[text(x), {}]",
            "[text(y), {}]",
            before: forgetSample
        )
        #expect(upload.methods.filter { $0 == "POST" }.count == 2)
        #expect(upload.requests.last { $0.method == "PATCH" }?.contentLength == 1000)
        #expect(pending == [])
        try eventually("its part is removed") { upload.methods.contains("DELETE") }
    }

    @Test("a file whose length differs from the server's is not mixed with it")
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

    @Test("a server that accepts no byte is retried later, with a limit")
    func nothingTaken() throws {
        let upload = try Upload { request, count in
            switch request.method {
            case "POST": Self.created
            case "PATCH" where count < 3: Self.isAt(0)
            case "PATCH" where count < 6: Self.isAt(250 * (count - 2))
            case "PATCH": Self.done
            case "HEAD": Self.isAt(0, "Upload-Length: 1000")
            default: ("404 Not Found", [], "")
            }
        }
        let seen = try upload.send("chunkSize: 250")
        #expect(seen.end == "done")
        #expect(seen.states.filter { $0 == "waiting" }.count == 3)
    }

    @Test("a listener may pause an upload that begins to wait, or retry it at once")
    func listening() throws {
        let upload = try Upload { request, count in
            switch request.method {
            case "POST" where count < 2: ("503 Service Unavailable", [], "")
            default: Self.usual(request)
            }
        }
        let seen = try upload.evaluate(
            """
            const upload = new ResumableUpload(file, { endpoint: '/files/', retryDelays: [1e8] })
            upload.onstate = ({ detail }) => { if (detail.state === 'waiting') upload.pause() }
            const first = await upload.start().catch((error) => error.code)
            upload.onstate = ({ detail }) => { if (detail.state === 'waiting') upload.retryNow() }
            return [first, (await upload.start()).text]
            """
        )
        #expect(seen as? [String] == ["paused", "done"])
    }

    @Test("the response of a complete upload is fetched")
    func whole() throws {
        let upload = try Upload { request, _ in
            request.method == "HEAD" ? Self.isAt(1000) : Self.usual(request)
        }
        #expect(try upload.send("url: '/files/u'").end == "done")
        #expect(upload.methods == ["HEAD", "PATCH"])
        #expect(upload.requests.last { $0.method == "PATCH" }?.contentLength == 0)
    }

    @Test("a stalled connection is closed and retried")
    func stalled() throws {
        let upload = try Upload { request, count in
            // Without a response nothing shows that the server is working, so the client does not wait.
            if request.method == "HEAD", count == 0 { return nil }
            return Self.usual(request)
        }
        let sent = try upload.send("url: '/files/u', stallTimeout: 300")
        #expect(sent.end == "done")
        #expect(sent.states == ["running", "waiting", "running", "done"])
    }

    @Test("progress comes from the linked status resource while the application works")
    func status() throws {
        let isReported = Gate()
        let upload = try Upload { request, count in
            switch request.method {
            case "POST":
                return (
                    "201 Created", ["Location: /files/u", "Link: </files/s?u>; rel=\"status\""], ""
                )
            case "GET":
                // The client has received the previous response.
                if count > 1 { isReported.open() }
                return ("200 OK", [], #"{"offset": \#(count == 0 ? 250 : 1000)}"#)
            default:
                isReported.pass()
                return ("422 X", ["Upload-Complete: ?1"], "")
            }
        }
        let sent = try upload.send()
        #expect(sent.end == "refused")
        #expect(sent.loaded == 1000)
        let targets = upload.requests.filter { $0.method == "GET" }.map(\.target)
        #expect(targets.count >= 2 && targets.allSatisfy { $0 == "/files/s?u" })
    }

    @Test("a URL that accepts no uploads is reported at once", arguments: ["404", "200"])
    func noUploads(status: String) throws {
        let upload = try Upload { _, _ in ("\(status) X", [], "") }
        #expect(try upload.send().end == "server")
        #expect(upload.methods == ["POST"])
    }
}
