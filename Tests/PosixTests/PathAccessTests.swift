// The walk along a path, as in the kernel, up to the first obstacle.

import Foundation
import SpoolgatePosix
import Testing

@Suite struct PathAccessTests {
    private let root: String

    init() throws {
        // Resolves the system's links, so that paths can be compared.
        let temporary = try #require(realpath(NSTemporaryDirectory(), nil))
        defer { free(temporary) }
        root = "\(String(cString: temporary))/path-\(UInt64.random(in: 0...(.max)))"
        let files = FileManager.default
        try files.createDirectory(atPath: "\(root)/a/b", withIntermediateDirectories: true)
        try Data().write(to: URL(filePath: "\(root)/a/file"))
        for (name, target) in [
            ("relative", "a/b"), ("absolute", "\(root)/a"), ("up", "a/b/.."),
            ("dangling", "a/none"),
            ("loop", "loop"),
        ] {
            try files.createSymbolicLink(atPath: "\(root)/\(name)", withDestinationPath: target)
        }
    }

    private func remove() { try? FileManager.default.removeItem(atPath: root) }

    @Test(
        "links and dots lead to the same place as in the kernel",
        arguments: [
            ("a", "a"), ("a//b/", "a/b"), ("./a/../a/b/.", "a/b"), ("relative", "a/b"),
            ("relative/../file", "a/file"), ("absolute/b", "a/b"), ("up/file", "a/file"),
        ]
    )
    func reached(path: String, end: String) throws {
        defer { remove() }
        let facts = try PathAccess.require([], to: "\(root)/\(path)")
        #expect(facts.path == "\(root)/\(end)")
        #expect(facts.isDirectory == !end.hasSuffix("file"))
        #expect(facts.owner == geteuid())
    }

    @Test(
        "a missing path and a missing parent are distinguished",
        arguments: [
            ("none", "none", true), ("none/b", "none", false), ("dangling", "a/none", true),
            ("dangling/b", "a/none", false), ("relative/none", "a/b/none", true),
        ]
    )
    func missing(path: String, name: String, isLast: Bool) {
        defer { remove() }
        #expect(throws: PathObstacle.missing(path: "\(root)/\(name)", isLast: isLast)) {
            try PathAccess.require(.all, to: "\(root)/\(path)")
        }
    }

    @Test("a file is not a directory, and a loop ends")
    func neither() {
        defer { remove() }
        do throws(PathObstacle) {
            _ = try PathAccess.require(.read, to: "\(root)/a/file/b")
            Issue.record("found")
        } catch {
            guard case .notDirectory(let facts) = error else {
                Issue.record("\(error)")
                return
            }
            #expect(facts.path == "\(root)/a/file")
        }
        let path = "\(root)/loop"
        #expect(
            throws: PathObstacle.failed(SystemError(call: "open", subject: path, errno: ELOOP))
        ) { try PathAccess.require(.read, to: path) }
    }

    @Test(
        "the parent directory",
        arguments: [("/a/b", "/a"), ("/a//b/", "/a"), ("/a", "/"), ("/", "/")]
    )
    func parent(path: String, parent: String) { #expect(PathAccess.parent(of: path) == parent) }
}
