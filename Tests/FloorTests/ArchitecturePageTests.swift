// The page of the architecture is short, and the files and names in it exist.

import Foundation
import Testing

@Suite("The page of the architecture")
struct ArchitecturePageTests {
    /// A question, the file with its answer, and a word in that file.
    struct Row: CustomTestStringConvertible {
        var question: String
        var file: String
        var word: String

        var testDescription: String { question }
    }

    private static let page =
        (try? String(
            contentsOf: SourceFile.root.appending(path: "ARCHITECTURE.md"),
            encoding: .utf8
        )) ?? ""

    static let rows = page.matches(of: /\n\| ([^|]+) \| `([\w\/+.]+\.swift)` \| `([^`]+)` \|/)
        .map { Row(question: String($0.1), file: String($0.2), word: String($0.3)) }

    @Test("it has at most 200 lines and answers all questions")
    func length() {
        #expect(Self.page.split(separator: "\n", omittingEmptySubsequences: false).count <= 201)
        #expect(Self.rows.count >= 20)
    }

    @Test("each question names a file that contains the word", arguments: rows)
    func responded(row: Row) throws {
        let top = row.file.contains("Tests/") ? "Tests" : "Sources"
        let url = SourceFile.root.appending(path: "\(top)/\(row.file)")
        #expect(try String(contentsOf: url, encoding: .utf8).contains(row.word))
    }

    @Test("each type and file it names exists")
    func names() throws {
        let files = SourceFile.sources + SourceFile.all(in: "Tests")
        var known = Set(
            files.map { URL(filePath: $0.path).deletingPathExtension().lastPathComponent }
        )
        let text = files.flatMap(\.lines).joined(separator: "\n") as NSString
        let types = try NSRegularExpression(pattern: "\\b(?:struct|class|enum|protocol) (\\w+)")
        for match in types.matches(in: text as String, range: NSRange(0..<text.length)) {
            known.insert(text.substring(with: match.range(at: 1)))
        }
        known.formUnion(Manifest.package.targets.map(\.name))
        // Folders, the common prefix of the targets' names, and a field.
        known.formUnion(["Sources", "Tests", "Spoolgate", "Location"])
        for match in Self.page.matches(of: /`([A-Z]\w*[a-z]\w*)`/) {
            let isKnown = known.contains(String(match.1))
            #expect(isKnown, "no \(match.1)")
        }
    }
}
