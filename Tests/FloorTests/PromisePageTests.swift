// The tests that the page of promises names exist.

import Foundation
import Testing

@Suite("The page of promises")
struct PromisePageTests {
    @Test("each test it names exists")
    func named() throws {
        let url = SourceFile.root.appending(path: "docs/PROMISES.md")
        let page = try String(contentsOf: url, encoding: .utf8)
        let tests = SourceFile.all(in: "Tests")
        let texts = Dictionary(
            tests.map { (URL(filePath: $0.path).deletingPathExtension().lastPathComponent, $0) },
            uniquingKeysWith: { first, _ in first }
        )
        let names = page.matches(of: /"([^"]+)"/).map { String($0.1) }
        #expect(names.count >= 15)
        let all = tests.filter { $0.path != "Tests/FloorTests/PromisePageTests.swift" }
            .flatMap(\.lines).joined(separator: "\n")
        for name in names { #expect(all.contains("\"\(name)\""), "no test \(name)") }
        let suites = page.matches(of: /`(\w+Tests)`/).map { String($0.1) }
        let targets = Set(tests.map(\.target))
        for suite in suites {
            #expect(texts[suite] != nil || targets.contains(suite), "no \(suite)")
        }
    }
}
