// Files handed over by path exist until the upstream responds with 2xx, and PHP can verify them as the settings page
// shows.

import Foundation
import HTTPTypes
import SpoolgatePosix
import SpoolgateSpool
import SpoolgateTestSupport
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@testable import SpoolgateDelivery
@testable import SpoolgateExchange
@testable import SpoolgateRequests
@testable import SpoolgateSettings

@Suite struct HandoverTests {
    private static let key = "a key of 24 bytes \u{e9} and"

    private struct Stage {
        let test: GatewayUnderTest
        private let scratch: ScratchDirectory
        var directory: String { scratch.file("files") }
        var keyFile: String { scratch.file("key") }

        init(
            _ target: UpstreamTarget,
            copies: Bool = false,
            _ change: (inout RouteSettings) -> Void = { _ in }
        ) throws {
            let scratch = try ScratchDirectory()
            self.scratch = scratch
            test = try GatewayUnderTest(target) { _, route in
                route.form = .path
                route.path.keyFile = scratch.file("key")
                route.path.directory = scratch.file("files")
                change(&route)
            }
            try Data((HandoverTests.key + "\n").utf8).write(to: URL(filePath: keyFile))
            #expect(chmod(keyFile, 0o600) == 0)
            // On the spool's file system, so files can be linked.
            let place = copies ? directory : "\(test.root)/handover"
            #expect(mkdir(place, 0o755) == 0)
            if !copies { #expect(symlink(place, directory) == 0) }
        }

        func names() throws -> [String] {
            try FileManager.default.contentsOfDirectory(
                atPath: URL(filePath: directory).resolvingSymlinksInPath().path()
            )
        }
    }

    private func members(_ request: LoopbackOrigin.Request) throws -> [String: String] {
        let text = String(decoding: request.content, as: UTF8.self)
        var members: [String: String] = [:]
        for pair in text.split(separator: "&") {
            let words = pair.split(separator: "=", omittingEmptySubsequences: false)
            #expect(words.count == 2)
            let name = try #require(words.first.map(String.init)?.removingPercentEncoding)
            members[name] = try #require(words.last.map(String.init)?.removingPercentEncoding)
        }
        return members
    }

    /// Reads the file named in the request, then responds.
    private static func origin(_ status: String, _ seen: SeenFiles) throws -> LoopbackOrigin {
        try LoopbackOrigin { connection in
            while let request = try connection.receiveRequest() {
                seen.look(request)
                try connection.response(status)
            }
        }
    }

    @Test("content that was truncated during a copy is received again, not delivered short")
    func cutBack() throws {
        let seen = SeenFiles()
        let origin = try Self.origin("204 No Content", seen)
        let stage = try Stage(origin.target, copies: true)
        stage.test.reload { $0.interim.heartbeat = .nanoseconds(1) }
        stage.test.disk.refuse(.sync, on: ".data", errno: EIO, times: 1)
        let content = Array("hello".utf8)
        let cut = stage.test.serve(.creation([.bytes(content)], target: "/in"))
        #expect(cut.status == 500)
        let location = try #require(cut.location)
        #expect(try stage.test.queue(of: location) == .incoming)
        let again = stage.test.serve(.append(location, at: 0, [.bytes(content)]))
        #expect(again.status == 204)
        #expect(seen.contents == [content])
    }

    @Test("an ordinary upload that the upstream never received leaves nothing")
    func neverTold() throws {
        let stage = try Stage(.http(base: "http://127.0.0.1:1"))
        #expect(stage.test.serve(ScriptedExchange(.put, "/in", [:], ["x"])).status == 502)
        #expect(try stage.names() == [])
    }

    @Test(
        "the file exists during the request, and is removed after 2xx; linked or copied",
        arguments: [true, false],
        [true, false]
    )
    func handedOver(copies: Bool, isPlain: Bool) throws {
        let seen = SeenFiles()
        let origin = try Self.origin("204 No Content", seen)
        let stage = try Stage(origin.target, copies: copies)
        let content = (0..<300_000).map { UInt8(truncatingIfNeeded: $0 &* 7) }
        let fields: HTTPFields = [
            .contentType: "video/mp4", .uploadMetadata: "album c3VtbWVy,filename x",
            .contentDisposition: "attachment; filename*=UTF-8''n%C3%A4me%20%22.mp4",
        ]
        let context = ExchangeContext(owner: "jürgen", interimStatuses: [104])
        let record =
            isPlain
            ? stage.test.serve(
                ScriptedExchange(.put, "/in?a=b", fields, [.bytes(content)], context: context)
            )
            : stage.test.serve(
                .creation([.bytes(content)], target: "/in?a=b", fields: fields, context: context)
            )
        #expect(record.status == 204)
        let request = try #require(origin.requests.first)
        #expect(request.line == "POST /in?a=b HTTP/1.1")
        #expect(request.values("Content-Type") == ["application/x-www-form-urlencoded"])
        let members = try members(request)
        let upload = try #require(members["upload"])
        #expect(members["path"] == "\(stage.directory)/\(upload)-n__me__.mp4")
        #expect(members["name"] == "näme \".mp4")
        #expect(members["size"] == "300000")
        #expect(members["content-type"] == "video/mp4")
        #expect(members["target"] == "/in?a=b")
        #expect(members["owner"] == "jürgen")
        #expect(members["metadata"] == "{\"album\":\"summer\"}")
        #expect(members["sha-256"]?.count == 64)
        #expect(members["signature"]?.count == 64)
        #expect(members["key-id"] == nil)
        #expect(seen.contents == [content])
        #expect(seen.permissions == [0o640])
        #expect(try stage.names() == [])
    }

    @Test("after another response the file stays until its time is over")
    func kept() throws {
        let seen = SeenFiles()
        let origin = try Self.origin("500 Internal Server Error", seen)
        let stage = try Stage(origin.target)
        #expect(stage.test.serve(.creation()).status == 500)
        let name = try #require(try stage.names().first)
        for other in ["precious", "\(name.prefix(25))-x", ".\(name).part"] {
            try Data().write(to: URL(filePath: "\(stage.directory)/\(other)"))
        }
        var route = RouteSettings()
        route.form = .path
        route.path.directory = stage.directory
        route.path.retention = .seconds(3600)
        var removed: [String] = []
        func sweep(after seconds: Int64) throws -> [String] {
            removed = []
            let now = WallTime(seconds: WallTime.now.seconds + seconds)
            try route.removeExpiredHandovers(now: now) { removed.append($0) }
            return removed
        }
        #expect(try sweep(after: 3500) == [])
        #expect(try stage.names().count == 4)
        let gone = try sweep(after: 3700)
        #expect(Set(gone) == ["\(stage.directory)/\(name)", "\(stage.directory)/.\(name).part"])
        #expect(try stage.names().sorted() == ["\(name.prefix(25))-x", "precious"].sorted())
    }

    @Test(
        "a file that cannot be moved or signed is not sent, and can be tried again",
        arguments: ["directory", "short key", "open key", "no key"]
    )
    func trouble(what: String) throws {
        let seen = SeenFiles()
        let origin = try Self.origin("200 OK", seen)
        let stage = try Stage(origin.target, copies: true)
        switch what {
        case "directory": try FileManager.default.removeItem(atPath: stage.directory)
        case "short key":
            let file = try FileHandle(forWritingTo: URL(filePath: stage.keyFile))
            try file.truncate(atOffset: 15)
            try file.close()
        case "open key": chmod(stage.keyFile, 0o644)
        default: try FileManager.default.removeItem(atPath: stage.keyFile)
        }
        let record = stage.test.serve(.creation())
        #expect(record.status == 502)
        #expect(record[.uploadComplete] == "?0")
        #expect(!record.text.contains(stage.directory))
        #expect(stage.test.serve(ScriptedExchange(.put, "/x", [:], ["x"])).status == 502)
        #expect(origin.requests.isEmpty)
        let location = try #require(record.location)
        #expect(try stage.test.queue(of: location) == .deferred)
        let reason = try #require(try stage.test.summaries().first?.reason)
        #expect(reason.contains(what == "directory" ? stage.directory : stage.keyFile))
        var route = RouteSettings()
        route.form = .path
        route.path.keyFile = stage.keyFile
        #expect((route.keyFault == nil) == (what == "directory"))
        try FileManager.default.createDirectory(
            atPath: stage.directory,
            withIntermediateDirectories: true
        )
        try Data(Self.key.utf8).write(to: URL(filePath: stage.keyFile))
        chmod(stage.keyFile, 0o600)
        #expect(stage.test.serve(.append(location, at: 5)).status == 200)
        #expect(seen.contents == [Array("hello".utf8)])
        #expect(route.keyFault == nil)
    }

    @Test(
        "PHP verifies and moves a file with the lines of the settings' page",
        .enabled(if: FileManager.default.isExecutableFile(atPath: "/usr/bin/php"), "no php"),
        arguments: [true, false]
    )
    func php(isTampered: Bool) throws {
        let taken = try ScratchDirectory()
        let keyFile = Monitor("")
        let origin = try LoopbackOrigin { connection in
            while let request = try connection.receiveRequest() {
                var content = String(decoding: request.content, as: UTF8.self)
                if isTampered { content = content.replacingOccurrences(of: "hello", with: "hallo") }
                let status = try Self.runPHP(
                    content,
                    key: keyFile.update { $0 },
                    taken: taken.path
                )
                try connection.send("HTTP/1.1 \(status) PHP\r\nContent-Length: 0\r\n\r\n")
            }
        }
        let stage = try Stage(origin.target) { $0.path.keyID = "main & co" }
        keyFile.update { $0 = stage.keyFile }
        let fields: HTTPFields = [
            .contentDisposition: "attachment; filename*=UTF-8''hello%20%F0%9F%98%80%26%3D.txt",
            .uploadMetadata: "k w6kiCg==",
        ]
        let record = stage.test.serve(.creation(fields: fields))
        #expect(record.status == (isTampered ? 403 : 200))
        let files = taken.names
        #expect(files.count == (isTampered ? 0 : 1))
        #expect(try stage.names().count == (isTampered ? 1 : 0))
        if let file = files.first {
            #expect(try Data(contentsOf: URL(filePath: taken.file(file))) == Data("hello".utf8))
        }
    }

    /// Runs the page's example with a request's content; returns its status.
    private static func runPHP(
        _ content: String,
        key: String,
        taken: String
    ) throws -> Int {
        let page = try String(
            contentsOf: URL(filePath: #filePath).deletingLastPathComponent()
                .deletingLastPathComponent().deletingLastPathComponent()
                .appending(path: "deploy/man/spoolgate.yaml.5"),
            encoding: .utf8
        )
        let start = try #require(page.range(of: "<?php\n"))
        let end = try #require(page.range(of: "\n.Ed", range: start.upperBound..<page.endIndex))
        var example = page[start.upperBound..<end.lowerBound].replacingOccurrences(
            of: "\\e",
            with: "\\"
        )
        example = example.replacingOccurrences(of: "/etc/application/path.key", with: key)
        example = example.replacingOccurrences(of: "/srv/files", with: taken)
        let before = """
            error_reporting(E_ALL);
            register_shutdown_function(function () { echo http_response_code() ?: 200; });
            parse_str(file_get_contents('php://stdin'), $_POST);

            """
        let process = Process()
        process.executableURL = URL(filePath: "/usr/bin/php")
        process.arguments = ["-n", "-d", "display_errors=stderr", "-r", before + example]
        let input = Pipe()
        let output = Pipe()
        process.standardInput = input
        process.standardOutput = output
        try process.run()
        try input.fileHandleForWriting.write(contentsOf: Data(content.utf8))
        try input.fileHandleForWriting.close()
        let said = try output.fileHandleForReading.readToEnd() ?? Data()
        process.waitUntilExit()
        return try #require(Int(String(decoding: said, as: UTF8.self)))
    }
}

final class SeenFiles: Sendable {
    private let seen = Monitor<[(content: [UInt8], permissions: Int)]>([])

    var contents: [[UInt8]] { seen.update { $0.map(\.content) } }
    var permissions: [Int] { seen.update { $0.map(\.permissions) } }

    func look(_ request: LoopbackOrigin.Request) {
        let text = String(decoding: request.content, as: UTF8.self)
        guard let pair = text.split(separator: "&").first(where: { $0.hasPrefix("path=") }),
            let path = String(pair.dropFirst(5)).removingPercentEncoding,
            let content = FileManager.default.contents(atPath: path),
            let attributes = try? FileManager.default.attributesOfItem(atPath: path),
            let mode = attributes[.posixPermissions] as? Int
        else { return }
        seen.update { $0.append((Array(content), mode)) }
    }
}
