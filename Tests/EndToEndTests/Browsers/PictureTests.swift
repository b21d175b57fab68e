// Screenshots of the upload and status pages for review, in two widths and two color schemes, in each engine:
//
//     SPOOLGATE_SHOTS=DIR swift test --filter PictureTests

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("Pictures of both pages", .serialized)
struct PictureTests {
    private static let folder = ProcessInfo.processInfo.environment["SPOOLGATE_SHOTS"]

    private static let engines = Engine.allCases.filter(\.isInstalled)

    @Test(
        "are taken",
        .enabled(if: folder != nil, "SPOOLGATE_SHOTS is not set"),
        arguments: engines,
        [false, true]
    )
    func pictures(engine: Engine, isDark: Bool) throws {
        let folder = URL(filePath: Self.folder ?? "")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        // Refuses the fake picture.
        let application = try LoopbackOrigin { connection in
            guard let request = try connection.receiveRequest() else { return }
            let isRefused = request.values("Content-Disposition").contains { $0.contains("fake") }
            let text = "It begins like a program, and this application takes pictures alone."
            try connection.response(
                isRefused ? "422 Unprocessable Content" : "201 Created",
                fields: ["Content-Type: text/plain"],
                content: isRefused ? text : "Thank you."
            )
        }
        var setup = Browser.Setup()
        setup.isDark = isDark
        let page = try PageUnderTest(
            engine,
            setup,
            upstream: application.base,
            front: .nginxWithPages
        )
        func shoot(_ name: String) throws {
            // MiniBrowser's window cannot be narrower than 500 pixels.
            for width in [engine == .webkit ? 500 : 320, 1400] {
                try page.browser.resize(width: width, height: 900)
                let scheme = isDark ? "dark" : "light"
                let file = "\(name)-\(engine.rawValue)-\(width)-\(scheme).png"
                try page.browser.screenshot().write(to: folder.appending(path: file))
            }
        }
        try shoot("upload-empty")
        let small = try ["notes.txt", "fake.png", "שלום עולם – תמונה.jpg"].map {
            try page.sandbox.randomFile(70_000, $0).url
        }
        try page.choose(small)
        try page.awaitState("fake.png", "failed")
        page.network.hold(at: 2_000_000)
        let long = "A film whose name is longer than a line of a narrow window (2).mkv"
        let large = try [long, "second.mkv", "third.mkv", "fourth.mkv"].map {
            try page.sandbox.randomFile(4_000_000, $0).url
        }
        try page.choose(large)
        for file in large.prefix(2) { try page.awaitReceived(file.lastPathComponent) }
        try page.press("Pause", "second.mkv")
        try page.awaitState("second.mkv", "paused")
        try shoot("upload-running")
        page.network.cut()
        try page.awaitState(long, "waiting")
        try page.press("Cancel", "fourth.mkv")
        try shoot("upload-waiting")
        if engine == .chromium {
            try page.browser.forceColors(true)
            try shoot("upload-forced")
            try page.browser.forceColors(false)
        }
        page.network.restore()
        try page.browser.reload()
        try eventually("the page asks for the files") {
            try page.unfinished().contains("second.mkv")
        }
        try shoot("upload-unfinished")
        try page.browser.open("http://localhost:\(page.network.port)/-/spoolgate/")
        try eventually("the partial uploads are listed") {
            try page.browser.text("return document.body.innerText").contains("idle for")
        }
        try shoot("status")
    }
}
