// `spoolgate-upload` for several files: kills, the next run, and exit codes.

import Foundation
import SpoolgatePosix
import SpoolgateTestSupport
import Testing

@Suite("The client's command for many files, killed and restarted")
struct UploadBatchTests {
    /// The files in a tree; set more by hand: `SPOOLGATE_TREE=10000`.
    private static let count =
        ProcessInfo.processInfo.environment["SPOOLGATE_TREE"].flatMap { Int($0) } ?? 240

    /// Creates a tree of different files; returns their content by path.
    private static func makeTree(_ root: String) throws -> [String: Data] {
        var files: [String: Data] = [:]
        for number in 0..<count {
            let path = "d\(number % 7)/e\(number % 3)/f\(number)"
            var content = Data("\(path)\n".utf8)
            // One in forty is large enough for an append of its own.
            content.append(
                Data(
                    repeating: UInt8(truncatingIfNeeded: number),
                    count: number % 40 == 0 ? 1_200_000 : number
                )
            )
            files[path] = content
            let file = URL(filePath: root).appending(path: path)
            try FileManager.default.createDirectory(
                at: file.deletingLastPathComponent(),
                withIntermediateDirectories: true
            )
            try content.write(to: file)
        }
        return files
    }

    @Test(
        "a tree arrives whole despite ten kill -9, and each POST is accepted once",
        arguments: ["POST", "PUT"]
    )
    func killed(method: String) throws {
        let world = try UploadCommandWorld()
        let tree = world.file("tree")
        let files = try Self.makeTree(tree)
        for kill in 1...10 {
            let command = try world.start("-X", method, "-j", "4", tree, world.url(""))
            let least = Self.count * kill / 12
            try eventually("\(least) are there, or it has ended") {
                try world.sandbox.delivered().count >= least
            }
            command.signal(SIGKILL)
            _ = command.wait()
        }
        let last = try world.run("-X", method, "-j", "4", tree, world.url(""))
        #expect(last.status == 0, "\(last.errors)")
        let contents = try world.sandbox.delivered().map { try Data(contentsOf: $0) }
        let counts = Dictionary(grouping: contents) { $0 }.mapValues(\.count)
        #expect(Set(counts.keys) == Set(files.values))
        if method == "POST" { #expect(counts.values.allSatisfy { $0 == 1 }) }
        let targets = try Self.targets(world.sandbox)
        #expect(Set(targets) == Set(files.keys.map { "/files/\($0)" }))
        #expect(world.states().isEmpty)
    }

    /// According to the records of the delivered uploads.
    private static func targets(_ sandbox: Sandbox) throws -> [String] {
        let folder = sandbox.directory.appending(path: "delivered")
        return try FileManager.default
            .contentsOfDirectory(at: folder, includingPropertiesForKeys: nil)
            .filter { $0.pathExtension == "json" && !$0.lastPathComponent.hasPrefix(".") }
            .map { file in
                let record = try JSONSerialization.jsonObject(with: Data(contentsOf: file))
                return try #require((record as? [String: Any])?["target"] as? String)
            }
    }

    /// A server that responds to each file by its name.
    private struct Place {
        let scratch: ScratchDirectory
        let origin: LoopbackOrigin
        let responses = Monitor<[String: String]>([:])

        init(_ names: [String]) throws {
            scratch = try ScratchDirectory()
            let responses = responses
            origin = try LoopbackOrigin { connection in
                while let request = try connection.receiveRequest() {
                    let name = request.target.split(separator: "/").last.map(String.init) ?? ""
                    try connection.response(responses.update { $0[name] } ?? "201 Created")
                }
            }
            for name in names { try Data(name.utf8).write(to: URL(filePath: scratch.file(name))) }
        }

        func run(_ arguments: String...) throws -> Command {
            try Command(
                UploadCommandWorld.program,
                arguments,
                environment: ["XDG_STATE_HOME": scratch.file("state"), "no_proxy": "*"]
            )
        }

        func sent() -> [String] {
            defer { origin.forget { _ in true } }
            return origin.requests.map { String($0.target.split(separator: "/").last ?? "") }
                .sorted()
        }
    }

    @Test(
        "a failed file does not stop others; the next run sends the rest, the one after it everything"
    )
    func continues() throws {
        let names = ["a", "b", "c", "d"]
        let place = try Place(names)
        let words = ["-X", "PUT", "--retry-for", "0s"] + names.map { place.scratch.file($0) }
        func run() throws -> Command {
            try Command(
                UploadCommandWorld.program,
                words + [place.origin.base + "/files/"],
                environment: ["XDG_STATE_HOME": place.scratch.file("state"), "no_proxy": "*"]
            )
        }
        place.responses.update { $0 = ["b": "503 Service Unavailable"] }
        let later = try run()
        #expect(later.status == 75, "\(later.errors)")
        #expect(later.errors.contains(place.scratch.file("b")))
        #expect(later.errors.contains("/files/b"))
        #expect(later.errors.contains("3 files uploaded, "))
        #expect(later.errors.contains("1 file remaining"))
        #expect(place.sent() == names)
        place.responses.update { $0 = ["b": "403 Forbidden"] }
        let refused = try run()
        #expect(refused.status == 1, "\(refused.errors)")
        #expect(place.sent() == ["b"], "accepted files were sent again")
        place.responses.update { $0 = [:] }
        let taken = try run()
        #expect(taken.status == 0 && taken.errors.isEmpty, "\(taken.errors)")
        #expect(place.sent() == ["b"])
        #expect(try run().status == 0)
        #expect(place.sent() == names, "a new batch did not send every file")
        // A file changed after its upload is sent again.
        place.responses.update { $0 = ["b": "403 Forbidden"] }
        #expect(try run().status == 1)
        _ = place.sent()
        try Data("other".utf8).write(to: URL(filePath: place.scratch.file("c")))
        #expect(try run().status == 1)
        #expect(place.sent() == ["b", "c"])
    }

    @Test("JSON has each line's file, and a summary")
    func json() throws {
        let place = try Place(["a", "b"])
        place.responses.update { $0 = ["b": "403 Forbidden"] }
        let run = try place.run(
            "-X",
            "PUT",
            "--progress",
            "json",
            place.scratch.file("a"),
            place.scratch.file("b"),
            place.origin.base + "/files/"
        )
        #expect(run.status == 1)
        let lines = try run.errors.split(separator: "\n").map {
            try #require(try JSONSerialization.jsonObject(with: Data($0.utf8)) as? [String: Any])
        }
        let ends = lines.filter { $0["event"] as? String == "end" }
        let exits = Dictionary(
            uniqueKeysWithValues: ends.map { ($0["file"] as? String ?? "", $0["exit"] as? Int) }
        )
        #expect(exits == [place.scratch.file("a"): 0, place.scratch.file("b"): 1])
        let summary = try #require(lines.last)
        #expect(summary["event"] as? String == "summary")
        #expect(summary["accepted"] as? Int == 1 && summary["refused"] as? Int == 1)
        #expect(summary["exit"] as? Int == 1)
    }

    @Test("files with the same URL are refused before anything is sent")
    func collision() throws {
        let place = try Place(["a"])
        try FileManager.default.createDirectory(
            atPath: place.scratch.file("d"),
            withIntermediateDirectories: true
        )
        try Data("x".utf8).write(to: URL(filePath: place.scratch.file("d/a")))
        let run = try place.run(
            place.scratch.file("a"),
            place.scratch.file("d"),
            place.origin.base + "/files/"
        )
        #expect(run.status == 2)
        #expect(run.errors.contains("would both be sent to"))
        #expect(place.sent().isEmpty)
    }
}
