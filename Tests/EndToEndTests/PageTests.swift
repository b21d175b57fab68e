// The shipped page in a real browser: user actions and network faults.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite(
    "The page in a browser",
    .serialized,
    .enabled(if: Engine.chromium.isInstalled, Engine.chromium.missing),
    .sharedBrowser
)
struct PageTests {
    private static let half = 2_000_000
    private static let whole = 4_000_000

    @Test("dropped files arrive whole by name, also an empty one and one in a folder")
    func dropped() throws {
        let origin = try LoopbackOrigin(status: "201 Created")
        let page = try PageUnderTest(upstream: origin.base)
        let names = ["one.bin", "Übung – 日本語 (*'x').txt", "empty.dat", "four 4.bin"]
        let files = try zip(names, [3_000_000, 70_000, 0, 200_000]).map {
            try page.sandbox.randomFile($1, $0)
        }
        let folder = page.sandbox.directory.appending(path: "folder")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        let inside = folder.appending(path: names[3])
        try FileManager.default.moveItem(at: files[3].url, to: inside)
        try page.browser.drop(files.prefix(3).map(\.url) + [folder], on: "#drop")
        for name in names { try page.awaitState(name, "done") }
        let arrived = origin.requests.map { request in
            let told = request.values("Content-Disposition").first ?? ""
            let name = told.replacing("attachment; filename*=UTF-8''", with: "")
            return (name.removingPercentEncoding ?? "", Data(request.content))
        }
        #expect(arrived.count == names.count)
        let contents = Dictionary(arrived) { first, _ in first }
        for (name, file) in zip(names, files) { #expect(contents[name] == file.bytes, "\(name)") }
        #expect(try page.browser.console() == [])
        #expect(try page.unfinished() == [])
        #expect(try page.browser.run("return localStorage.length") as? Int == 0)
    }

    /// The text and state of each row.
    private static func rows(_ page: PageUnderTest) throws -> [String] {
        let script =
            "return [...document.querySelectorAll('#list > li')].map((e) => `${e.dataset.state} ${e.textContent}`)"
        return try page.browser.run(script) as? [String] ?? []
    }

    @Test("equal files in two folders of one drop both arrive")
    func equalNames() throws {
        let origin = try LoopbackOrigin(status: "201 Created")
        let page = try PageUnderTest(upstream: origin.base)
        let root = page.sandbox.directory.appending(path: "root")
        let files = ["a/__init__.py", "b/__init__.py"].map { root.appending(path: $0) }
        for file in files {
            try FileManager.default.createDirectory(
                at: file.deletingLastPathComponent(),
                withIntermediateDirectories: true
            )
            try Data("same".utf8).write(to: file)
            try FileManager.default.setAttributes(
                [.modificationDate: Date(timeIntervalSince1970: 1_000_000)],
                ofItemAtPath: file.path()
            )
        }
        try page.browser.drop([root], on: "#drop")
        try eventually("both are finished") {
            try page.browser.text("return document.querySelector('#total').textContent")
                .contains("2 of 2 finished")
        }
        #expect(origin.requests.count == 2)
        let rows = try Self.rows(page)
        #expect(rows.count == 2)
        #expect(
            rows.contains { $0.contains("root/a/") } && rows.contains { $0.contains("root/b/") }
        )
    }

    /// What a screen reader says.
    private static func told(_ page: PageUnderTest) throws -> String {
        try page.browser.text("return document.querySelector('#live').textContent")
    }

    @Test("the same file chosen twice is a row of its own, and is sent again only on request")
    func double() throws {
        let origin = try LoopbackOrigin(status: "201 Created")
        let page = try PageUnderTest(upstream: origin.base)
        let file = try page.sandbox.randomFile(70_000, "twice.bin")
        try page.choose(file.url)
        try page.awaitState("twice.bin", "done")
        try page.choose(file.url)
        try eventually("the second row says that it is a double") {
            try Self.rows(page).last?.contains("double") == true
        }
        try eventually("the page tells it to those who do not see the row") {
            try Self.told(page).contains("twice.bin: Not sent: a file with the same name")
        }
        let rows = try Self.rows(page)
        #expect(rows.count == 2)
        #expect(rows.last?.contains("already in the list") == true)
        #expect(
            try page.browser.text("return document.querySelector('#total').textContent")
                .contains("1\u{A0}not sent")
        )
        #expect(origin.requests.count == 1)
        try page.press("Upload again", "twice.bin")
        try eventually("both are sent") { origin.requests.count == 2 }
        #expect(origin.requests.map { Data($0.content) } == [file.bytes, file.bytes])
    }

    @Test(
        "after a reload, another file of the same name, size and time begins anew",
        arguments: engines
    )
    func otherContent(engine: Engine) throws {
        let origin = try LoopbackOrigin(status: "201 Created")
        let page = try PageUnderTest(engine, upstream: origin.base)
        let file = try page.begin("photo.raw", Self.whole, holdingAt: Self.half)
        let attributes = try FileManager.default.attributesOfItem(atPath: file.url.path())
        let date = try #require(attributes[.modificationDate] as? Date)
        try page.browser.reload()
        try eventually("the page asks for the file") { try page.unfinished() == ["photo.raw"] }
        page.network.cut()
        page.network.hold(at: nil)
        page.network.restore()
        let other = try page.sandbox.randomFile(Self.whole, "photo.raw")
        try FileManager.default.setAttributes(
            [.modificationDate: date],
            ofItemAtPath: other.url.path()
        )
        try page.choose(other.url)
        try page.awaitState("photo.raw", "done")
        #expect(try page.creations() == 2)
        #expect(origin.requests.map { Data($0.content) } == [other.bytes])
        // The first file's part can still be continued.
        #expect(try page.unfinished() == ["photo.raw"])
    }

    @Test("over HTTP/2 as well")
    func overHTTP2() throws {
        let origin = try LoopbackOrigin(
            status: "201 Created",
            fields: ["Content-Type: text/plain"],
            content: "thank you"
        )
        let page = try PageUnderTest(upstream: origin.base, isSecure: true)
        let files = try (0..<4).map { try page.sandbox.randomFile(1_000_000, "\($0).bin") }
        try page.browser.choose(files.map(\.url), in: "#pick")
        for number in 0..<4 { try page.awaitState("\(number).bin", "done") }
        #expect(try page.words("3.bin").contains("Uploaded. thank you"))
        #expect(Set(origin.requests.map { Data($0.content) }) == Set(files.map(\.bytes)))
        #expect(origin.requests.count == 4)
        #expect(try page.creations(over: "HTTP/2.0") == 4)
    }

    @Test("after a reload during an upload the page asks for the file and continues")
    func reloaded() throws {
        let origin = try LoopbackOrigin(status: "201 Created")
        let page = try PageUnderTest(upstream: origin.base)
        // Content still in nginx is lost with the connection.
        let file = try page.begin(
            "photo.raw",
            Self.whole,
            holdingAt: Self.half,
            atLeast: Self.half * 9 / 10
        )
        try page.browser.reload()
        #expect(try page.unfinished() == ["photo.raw"])
        // Otherwise bytes in the system's buffers would arrive although no page waits for them.
        page.network.cut()
        page.network.restore()
        try page.choose(file.url)
        try page.awaitReceived("photo.raw")
        #expect(try page.unfinished() == [])
        page.network.hold(at: nil)
        try page.awaitState("photo.raw", "done")
        #expect(try page.creations() == 1)
        #expect(origin.requests.map { Data($0.content) } == [file.bytes])
        #expect(
            page.network.passed < Self.whole + Self.half,
            "received bytes were sent again; \((try? page.history()) ?? "")"
        )
    }

    // Long because of the pauses between the page's attempts.
    @Test("an upload waits while the network is down and continues when it is back")
    func cut() throws {
        let origin = try LoopbackOrigin(status: "201 Created")
        let page = try PageUnderTest(upstream: origin.base)
        let file = try page.begin("long.bin", Self.whole, holdingAt: Self.half)
        // The bar shows arrived bytes, not those in the system's buffers.
        #expect(try page.shown("long.bin") <= page.network.passed)
        page.network.cut()
        try page.awaitState("long.bin", "waiting")
        try eventually("it says why, between two attempts") {
            try page.words("long.bin").contains("The connection was lost.")
        }
        // The pauses between attempts take some seconds.
        try eventually("it tries again and again") { page.network.refused >= 4 }
        page.network.hold(at: nil)
        page.network.restore()
        try page.awaitState("long.bin", "done")
        #expect(try page.creations() == 1)
        #expect(origin.requests.map { Data($0.content) } == [file.bytes])
    }

    @Test("a lost response is fetched, and the upload is not sent again")
    func lostAnswer() throws {
        let isCut = Gate()
        let origin = try LoopbackOrigin { connection in
            guard try connection.receiveRequest() != nil else { return }
            isCut.pass()
            try connection.response("201 Created", content: "at last")
        }
        let page = try PageUnderTest(upstream: origin.base)
        let file = try page.sandbox.randomFile(Self.half, "answered.bin")
        try page.choose(file.url)
        try eventually("the upstream has received the file") { origin.requests.count == 1 }
        try eventually("the page says so") {
            try page.words("answered.bin").contains("Sent. The server")
        }
        page.network.cut()
        try page.awaitState("answered.bin", "waiting")
        isCut.open()
        page.network.restore()
        try page.awaitState("answered.bin", "done")
        #expect(try page.words("answered.bin").contains("at last"))
        #expect(origin.requests.map { Data($0.content) } == [file.bytes])
    }

    @Test(
        "after a pause the upload continues where it stopped; the keyboard focus stays on the button"
    )
    func paused() throws {
        let origin = try LoopbackOrigin(status: "201 Created")
        let page = try PageUnderTest(upstream: origin.base)
        let file = try page.begin("slow.bin", Self.whole, holdingAt: Self.half)
        try page.press("Pause", "slow.bin")
        try page.awaitState("slow.bin", "paused")
        #expect(try page.words("slow.bin").contains("Paused,"))
        let focus = "return document.activeElement.ariaLabel"
        #expect(try page.browser.text(focus) == "Resume slow.bin")
        page.network.hold(at: nil)
        try page.browser.press("\u{E007}")
        try page.awaitState("slow.bin", "done")
        #expect(try page.browser.text(focus) == "Remove slow.bin")
        #expect(try page.creations() == 1)
        #expect(origin.requests.map { Data($0.content) } == [file.bytes])
        try page.browser.press("\u{E007}")
        try eventually("it is removed") { try page.state("slow.bin").isEmpty }
        #expect(try page.browser.text("return document.activeElement.id") == "pick")
    }

    @Test("a canceled upload is removed from the server and from the list")
    func cancelled() throws {
        let page = try PageUnderTest()
        _ = try page.begin("wrong.bin", Self.whole, holdingAt: Self.half)
        try page.press("Cancel", "wrong.bin")
        try eventually("the spool is empty") {
            try page.sandbox.spoolgate("list", "--json").output.isEmpty
        }
        #expect(try page.state("wrong.bin").isEmpty)
        #expect(try page.unfinished() == [])
        #expect(try page.browser.run("return localStorage.length") as? Int == 0)
    }

    @Test("a cancellation can be undone for some seconds, and the upload continues")
    func undone() throws {
        let origin = try LoopbackOrigin(status: "201 Created")
        let page = try PageUnderTest(upstream: origin.base)
        let file = try page.begin("right.bin", Self.whole, holdingAt: Self.half)
        try page.press("Cancel", "right.bin")
        try page.awaitState("right.bin", "cancelled")
        #expect(
            try page.browser.text("return document.activeElement.ariaLabel") == "Undo right.bin"
        )
        page.network.hold(at: nil)
        try page.press("Undo", "right.bin")
        try page.awaitState("right.bin", "done")
        #expect(try page.creations() == 1)
        #expect(origin.requests.map { Data($0.content) } == [file.bytes])
    }

    @Test("an unfinished upload is discarded after some seconds, unless that is undone")
    func discarded() throws {
        let page = try PageUnderTest()
        let files = try ["kept.bin", "wrong.bin"].map {
            try page.sandbox.randomFile(Self.whole, $0)
        }
        page.network.hold(at: Self.half)
        try page.choose(files.map(\.url))
        for name in ["kept.bin", "wrong.bin"] { try page.awaitReceived(name) }
        try page.browser.reload()
        func discard(_ name: String) throws {
            // The page before the reload keeps its locks for a moment.
            let click = "document.querySelector(`[aria-label='Discard ${arguments[0]}']`)?.click()"
            let find =
                "return document.querySelector(`[aria-label='Undo ${arguments[0]}']`) !== null"
            try eventually("\(name) is discarded") {
                try page.browser.run("\(click); \(find)", name) as? Bool == true
            }
        }
        try discard("kept.bin")
        try page.press("Undo", "kept.bin")
        try discard("wrong.bin")
        page.network.cut()
        page.network.hold(at: nil)
        page.network.restore()
        try eventually("one upload is removed from the server") {
            try page.sandbox.spoolgate("list", "--json").output.split(separator: "\n").count == 1
        }
        #expect(try page.unfinished() == ["kept.bin"])
    }

    // Long because of seven uploads in a browser, held, paused and resumed.
    @Test(
        "all uploads can be paused, resumed and canceled at once; the title shows the progress"
    )
    func all() throws {
        let origin = try LoopbackOrigin(status: "201 Created")
        let page = try PageUnderTest(upstream: origin.base)
        let names = (0..<5).map { "\($0).bin" }
        let files = try names.map { try page.sandbox.randomFile(Self.whole, $0) }
        page.network.hold(at: Self.half)
        try page.choose(files.map(\.url))
        try eventually("some bytes have arrived") {
            try page.browser.text("return document.title").contains(/^[1-9]\d? % – Upload files$/)
        }
        try page.browser.click("#pause-all")
        for name in names { try page.awaitState(name, "paused") }
        // The focus must not be on Cancel all next to it.
        try eventually("the focus is on the button that resumes all") {
            try page.browser.text("return document.activeElement.id") == "resume-all"
        }
        page.network.hold(at: nil)
        try page.browser.click("#resume-all")
        for name in names { try page.awaitState(name, "done") }
        try eventually("the page's own title is back") {
            try page.browser.text("return document.title") == "Upload files"
        }
        #expect(
            try page.browser.text("return document.querySelector('#total').textContent")
                == "5 of 5 finished, 20.0\u{A0}MB of 20.0\u{A0}MB"
        )
        #expect(Set(origin.requests.map { Data($0.content) }) == Set(files.map(\.bytes)))
        #expect(origin.requests.count == 5)

        page.network.hold(at: Self.half)
        // Connections that were used before would be held at once.
        page.network.cut()
        page.network.restore()
        let more = try ["five.bin", "six.bin"].map { try page.sandbox.randomFile(Self.whole, $0) }
        try page.choose(more.map(\.url))
        for name in ["five.bin", "six.bin"] { try page.awaitReceived(name) }
        try page.browser.click("#cancel-all")
        page.network.hold(at: nil)
        try eventually("the list does not show them") {
            try page.state("five.bin").isEmpty && page.state("six.bin").isEmpty
        }
        try eventually("the spool does not have them") {
            try !page.sandbox.spoolgate("list", "--json").output.contains("\"partial\"")
        }
    }

    @Test("while it waits, it counts down, shows how much was sent, and retries at once on request")
    func tryNow() throws {
        let origin = try LoopbackOrigin(status: "201 Created")
        let page = try PageUnderTest(upstream: origin.base)
        let file = try page.begin("long.bin", Self.whole, holdingAt: Self.half)
        // From now on only the user causes attempts.
        try page.browser.run(
            "const { setTimeout } = window; window.setTimeout = (body, ms) => setTimeout(body, ms > 1400 ? 3e6 : ms)"
        )
        page.network.cut()
        let count = /Trying again in \d+.s\. \d\.\d.MB of 4\.0.MB received\./
        try eventually("it counts down") { try page.words("long.bin").contains(count) }
        page.network.hold(at: nil)
        page.network.restore()
        try page.press("Try now", "long.bin")
        try page.awaitState("long.bin", "done")
        #expect(origin.requests.map { Data($0.content) } == [file.bytes])
    }

    // Long because the page shows a speed only after some seconds of steady content.
    @Test("a stalled upload shows no speed")
    func stalled() throws {
        let page = try PageUnderTest()
        let file = try page.sandbox.randomFile(20_000_000, "slow.bin")
        try page.browser.run(
            """
            window.speeds = 0
            new MutationObserver(() => {
                if (/\\/s, /.test(document.querySelector('#list').textContent)) window.speeds += 1
            }).observe(document.querySelector('#list'), { subtree: true, childList: true, characterData: true })
            """
        )
        for step in 1...8 {
            page.network.hold(at: step * 500_000)
            if step == 1 { try page.choose(file.url) }
            try page.awaitReceived("slow.bin", atLeast: step * 400_000)
        }
        try eventually("a speed is shown") {
            try page.browser.run("return speeds") as? Int ?? 0 > 0
        }
        try eventually("no speed is shown while the upload stalls") {
            try !page.words("slow.bin").contains("/s, ")
        }
        #expect(try page.state("slow.bin") == "running")
    }

    @Test("names are set apart from the text around them, and lists are lists")
    func semantics() throws {
        let page = try PageUnderTest()
        let name = "שלום עולם.txt"
        try page.choose(try page.sandbox.randomFile(70_000, name).url)
        try page.awaitState(name, "done")
        let seen = try page.browser.run(
            """
            const roles = [...document.querySelectorAll('ul')].map((list) => list.getAttribute('role'))
            return [document.querySelector('#list bdi').textContent, ...roles]
            """
        )
        #expect(seen as? [String] == [name, "list", "list"])
    }

    @Test("without JavaScript it is a form, and the application's response is shown")
    func form() throws {
        let origin = try LoopbackOrigin(
            status: "201 Created",
            fields: ["Content-Type: text/html"],
            content: "<!doctype html><p>thank you"
        )
        let sandbox = try Sandbox(upstream: origin.base, front: .nginxWithPage)
        var setup = Browser.Setup()
        setup.runsScripts = false
        let browser = try Browser(.chromium, setup)
        try browser.open("http://localhost:\(sandbox.port)/upload/")
        let file = try sandbox.randomFile(300_000, "plain.bin")
        try browser.choose([file.url], in: "#pick")
        try browser.click("button[type=submit]")
        try eventually("the application's response replaces the page") {
            try browser.text("return document.body.innerText").contains("thank you")
        }
        let request = try #require(origin.requests.first)
        #expect(origin.requests.count == 1)
        #expect(request.values("Content-Type").first?.hasPrefix("multipart/form-data;") == true)
        let content = Data(request.content)
        #expect(content.range(of: Data("filename=\"plain.bin\"".utf8)) != nil)
        #expect(content.range(of: file.bytes) != nil)
    }

    private static let engines = EngineTests.engines

    @Test("a file that is truncated during the upload ends the upload", arguments: engines)
    func cutShort(engine: Engine) throws {
        let origin = try LoopbackOrigin(status: "201 Created")
        let page = try PageUnderTest(engine, upstream: origin.base)
        // Otherwise detection takes 15 seconds.
        try page.browser.run(
            "const { setTimeout } = window; window.setTimeout = (body, ms) => setTimeout(body, (ms ?? 0) / 10)"
        )
        let file = try page.begin("short.bin", 20_000_000, holdingAt: Self.half)
        #expect(truncate(file.url.path(), 10_000_000) == 0)
        page.network.hold(at: nil)
        try page.awaitState("short.bin", "failed")
        #expect(try page.words("short.bin").contains(/has changed|can no longer be read/))
        #expect(origin.requests.isEmpty)
    }

    @Test(
        "after the page is left and opened again the upload continues, or the page asks for the file",
        arguments: engines
    )
    func leftAndBack(engine: Engine) throws {
        let origin = try LoopbackOrigin(status: "201 Created")
        let page = try PageUnderTest(engine, upstream: origin.base)
        let file = try page.begin("left.bin", Self.whole, holdingAt: Self.half)
        try page.browser.open("http://localhost:\(page.network.port)/upload/icon.svg")
        page.network.cut()
        page.network.hold(at: nil)
        page.network.restore()
        try page.browser.back()
        try eventually("the page is back") {
            try page.browser.text("return document.querySelector('h1')?.textContent ?? ''")
                == "Upload files"
        }
        try eventually("it continues, or asks again: \((try? page.words("left.bin")) ?? "")") {
            try page.state("left.bin") == "done" || page.unfinished() == ["left.bin"]
        }
        if try page.state("left.bin") != "done" { try page.choose(file.url) }
        try page.awaitState("left.bin", "done")
        #expect(try page.creations() == 1)
        #expect(origin.requests.map { Data($0.content) } == [file.bytes])
    }

    @Test("the upstream's refusal is shown in its own words, and there is no retry")
    func refused() throws {
        let origin = try LoopbackOrigin(
            status: "422 Unprocessable Content",
            fields: ["Content-Type: application/problem+json"],
            content: """
                {"title": "Not a picture", "detail": "It begins like a <b>program</b>.", "line": 17}
                """
        )
        let page = try PageUnderTest(upstream: origin.base)
        let file = try page.sandbox.randomFile(300_000, "fake.png")
        try page.choose(file.url)
        try page.awaitState("fake.png", "failed")
        let words = try page.words("fake.png")
        #expect(
            words.contains("It begins like a <b>program</b>."),
            "the response is not shown as text"
        )
        #expect(words.contains("Server response (422)"))
        #expect(words.contains("\"line\": 17"))
        #expect(try page.unfinished() == [])
        #expect(origin.requests.map { Data($0.content) } == [file.bytes])
    }

    @Test("requests stay within the server's maximum append size, and directories receive the file")
    func pieces() throws {
        let page = try PageUnderTest(routeSettings: ["limits: {max-append-size: 300KiB}"])
        let file = try page.sandbox.randomFile(1_000_000, "pieces.bin")
        try page.choose(file.url)
        try page.awaitState("pieces.bin", "done")
        #expect(try page.creations() == 1)
        #expect(try page.sandbox.delivered().map { try Data(contentsOf: $0) } == [file.bytes])
    }

    @Test("of two windows with one file, only one sends it")
    func twoWindows() throws {
        let origin = try LoopbackOrigin(status: "201 Created")
        let page = try PageUnderTest(upstream: origin.base)
        let file = try page.begin("same.bin", Self.whole, holdingAt: Self.half)
        try page.browser.openWindow()
        try page.browser.open("http://localhost:\(page.network.port)/upload/")
        try page.choose(file.url)
        try page.awaitState("same.bin", "failed")
        #expect(try page.words("same.bin").contains("in another window"))
        try page.press("Remove", "same.bin")
        #expect(try page.unfinished() == ["same.bin"])
        try page.press("Discard", "same.bin")
        try eventually("the page gives the reason") {
            try Self.told(page).contains("same.bin is being uploaded in another window.")
        }
        page.network.hold(at: nil)
        try eventually("the first window has sent it") { origin.requests.count == 1 }
        #expect(origin.requests.map { Data($0.content) } == [file.bytes])
        #expect(try page.creations() == 1)
    }
}
