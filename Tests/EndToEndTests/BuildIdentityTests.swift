// The identity that `make build` writes into programs, and the places that report it.

import Foundation
import SpoolgateTestSupport
import Testing

/// A source tree with linked programs, in which `swift` builds nothing.
private final class SourceTree {
    let directory: URL
    private let bin: URL
    private static let programs = ["spoolgate", "spoolgate-upload"]

    init() throws {
        let files = FileManager.default
        directory = files.temporaryDirectory.appending(path: "tree-\(UUID().uuidString.prefix(8))")
        bin = directory.appending(path: ".build/bin")
        let built = directory.appending(path: ".build/release")
        for folder in [built, bin] {
            try files.createDirectory(at: folder, withIntermediateDirectories: true)
        }
        for name in ["Makefile", "deploy", ".gitignore"] {
            try files.copyItem(
                at: Sandbox.root.appending(path: name),
                to: directory.appending(path: name)
            )
        }
        for name in Self.programs {
            let program = URL(filePath: Sandbox.program).deletingLastPathComponent()
            try files.copyItem(
                at: program.appending(path: name),
                to: built.appending(path: name)
            )
        }
        let swift = bin.appending(path: "swift")
        try Data("#!/bin/sh\n".utf8).write(to: swift)
        try files.setAttributes([.posixPermissions: 0o755], ofItemAtPath: swift.path())
    }

    deinit { try? FileManager.default.removeItem(at: directory) }

    func program(_ name: String) -> String {
        directory.appending(path: ".build/release/\(name)").path()
    }

    @discardableResult
    func git(_ arguments: String...) throws -> String {
        let identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        let said = try Command(
            "/usr/bin/env",
            ["git", "-C", directory.path()] + identity + arguments
        )
        try #require(said.status == 0, "git \(arguments): \(said.errors)")
        return said.output.trimmingCharacters(in: .newlines)
    }

    func commit() throws {
        try git("init", "-q")
        try git("add", ".")
        try git("commit", "-q", "-m", "a")
    }

    func make(_ target: String, _ environment: [String: String] = [:]) throws -> Command {
        let path = ProcessInfo.processInfo.environment["PATH"] ?? ""
        return try Command(
            "/usr/bin/env",
            ["make", "-C", directory.path(), target],
            environment: ["PATH": "\(bin.path()):\(path)", "BUILD": ""].merging(environment) { $1 }
        )
    }

    func versions() throws -> [String] {
        try Self.programs.map { name in
            try Command(program(name), ["--version"]).output.trimmingCharacters(in: .newlines)
        }
    }

    /// The file attributes by which the build system decides to link again.
    func traces() throws -> [String] {
        try Self.programs.map { name in
            try Command("/usr/bin/stat", ["-c", "%i %s %y", program(name)]).output
        }
    }
}

@Suite("The identity of a build")
struct BuildIdentityTests {
    @Test("make build embeds the commit, and marks uncommitted changes")
    func commit() throws {
        let tree = try SourceTree()
        try tree.commit()
        let traces = try tree.traces()
        for text in ["a", "b"] {
            let made = try tree.make("build")
            #expect(made.status == 0, "\(made.output)\(made.errors)")
            let head = try tree.git("rev-parse", "--short", "HEAD")
            #expect(try tree.versions() == Array(repeating: "0.1.0 (\(head))", count: 2))
            try Data(text.utf8).write(to: tree.directory.appending(path: "new"))
            #expect(try tree.make("build").status == 0)
            #expect(try tree.versions() == Array(repeating: "0.1.0 (\(head)-modified)", count: 2))
            try tree.git("add", ".")
            try tree.git("commit", "-q", "-m", text)
        }
        #expect(try tree.traces() == traces, "the build system would link the programs again")
    }

    @Test("a source without history says so, also inside another repository, or uses BUILD")
    func withoutHistory() throws {
        let tree = try SourceTree()
        let unknown = Array(repeating: "0.1.0 (unknown build)", count: 2)
        #expect(try tree.make("build").status == 0)
        #expect(try tree.versions() == unknown)
        #expect(try tree.make("build", ["BUILD": "1.2~deb12u1+g82c1e4e"]).status == 0)
        let given = Array(repeating: "0.1.0 (1.2~deb12u1+g82c1e4e)", count: 2)
        #expect(try tree.versions() == given)
        #expect(try tree.make("build").status == 0)
        #expect(try tree.versions() == unknown)
        for wrong in ["a b", "ü", String(repeating: "a", count: 64)] {
            let made = try tree.make("build", ["BUILD": wrong])
            #expect(made.status != 0 && made.errors.contains("BUILD is '\(wrong)'"), "\(made)")
        }
        let inner = tree.directory.appending(path: "inner")
        try FileManager.default.createDirectory(at: inner, withIntermediateDirectories: true)
        try FileManager.default.copyItem(
            at: tree.directory.appending(path: "deploy"),
            to: inner.appending(path: "deploy")
        )
        try tree.commit()
        let script = inner.appending(path: "deploy/identify.sh").path()
        let said = try Command(
            script,
            [tree.program("spoolgate"), tree.program("spoolgate-upload")],
            environment: ["BUILD": ""]
        )
        #expect(said.status == 0, "\(said.errors)")
        #expect(try tree.versions() == unknown)
    }

    @Test("a running program can be replaced, and continues")
    func running() throws {
        let tree = try SourceTree()
        let daemon = try Daemon(
            tree.program("spoolgate-upload"),
            ["-", "http://127.0.0.1:9/"],
            log: tree.directory.appending(path: "log"),
            environment: ["XDG_STATE_HOME": tree.directory.path()]
        )
        let made = try tree.make("build", ["BUILD": "next"])
        #expect(made.status == 0, "\(made.errors)")
        #expect(try tree.versions() == Array(repeating: "0.1.0 (next)", count: 2))
        #expect(daemon.process.isRunning)
    }

    @Test("each make target for release builds embeds the identity")
    func everyTarget() throws {
        let text = try String(
            contentsOf: Sandbox.root.appending(path: "Makefile"),
            encoding: .utf8
        )
        let recipes = text.components(separatedBy: "\n\n").filter {
            $0.contains("swift build $(RELEASE)")
        }
        #expect(recipes.count >= 5)
        for recipe in recipes {
            let builds = recipe.components(separatedBy: "\tswift build $(RELEASE)").dropFirst()
            let last = try #require(builds.last)
            #expect(last.contains("\n\t@$(IDENTIFY) $(GATEWAY)"), "\(recipe)")
        }
    }

    @Test("the daemon's metrics, status and page report the build")
    func everywhere() throws {
        let tree = try SourceTree()
        #expect(try tree.make("build", ["BUILD": "82c1e4e"]).status == 0)
        // Replaces the sandbox's program.
        let launcher = ["sh", "-c", "shift; exec \(tree.program("spoolgate")) \"$@\"", "sh"]
        let sandbox = try Sandbox(
            front: .nginxWithAdmin,
            launcher: ["/usr/bin/env"] + launcher
        )
        let prefix = "/-/spoolgate/"
        let metrics = try sandbox.ask("GET", prefix + "metrics").text
        #expect(
            metrics.contains("\nspoolgate_build_info{version=\"0.1.0\",build=\"82c1e4e\"} 1\n")
        )
        #expect(try sandbox.ask("GET", prefix).text.contains("spoolgate 0.1.0 (82c1e4e)"))
        let text = try sandbox.spoolgate("status")
        #expect(text.output.contains("\nspoolgate 0.1.0 (82c1e4e)"), "\(text)")
        let json = try sandbox.spoolgate("status", "--json")
        #expect(json.output.contains("\"version\":\"0.1.0\",\"build\":\"82c1e4e\""), "\(json)")
    }
}
