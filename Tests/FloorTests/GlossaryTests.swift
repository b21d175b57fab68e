// The words that the glossary of CONTRIBUTING.md forbids are in no comment of Sources, page or manual page.

import Foundation
import Testing

struct GlossaryText: CustomTestStringConvertible {
    /// Relative to the package.
    var path: String
    /// nil for a line that is not prose.
    var lines: [String?]

    var testDescription: String { path }

    static let all: [GlossaryText] = comments + pages + manualPages

    private static let comments = SourceFile.sources.map { file in
        GlossaryText(
            path: file.path,
            lines: file.lines.map { line in
                let code = line.drop { $0 == " " }
                return code.hasPrefix("//") ? String(code.drop { $0 == "/" }) : nil
            }
        )
    }

    private static let pages = texts(
        files(in: SourceFile.root).filter { $0.hasSuffix(".md") }
    ) { lines in
        var isCode = false
        return lines.map { line in
            guard line.hasPrefix("```") else { return isCode ? nil : line }
            isCode.toggle()
            return nil
        }
    }

    private static let manualPages = texts(
        files(in: SourceFile.root.appending(path: "deploy/man"))
    ) { lines in
        // Comments, and lines that have only names, code or paths.
        let skipped = [
            ".\\\"", ".Nm", ".Fl", ".Ic", ".Cm", ".Ql", ".Li", ".Dl", ".Pa", ".Ev", ".Va", ".Xr",
        ]
        var isCode = false
        return lines.map { line in
            if line.hasPrefix(".Bd -literal") { isCode = true }
            if line.hasPrefix(".Ed") { isCode = false }
            return isCode || skipped.contains { line.hasPrefix($0) } ? nil : line
        }
    }

    private static func files(in folder: URL) -> [String] {
        let skipped: Set = [".build", ".git", ".run", "Sources", "Tests", "nginx", "deploy"]
        let names = (try? FileManager.default.contentsOfDirectory(atPath: folder.path)) ?? []
        return names.sorted().filter { !skipped.contains($0) }.flatMap { name -> [String] in
            let place = folder.appending(path: name)
            var isFolder: ObjCBool = false
            _ = FileManager.default.fileExists(atPath: place.path, isDirectory: &isFolder)
            return isFolder.boolValue ? files(in: place) : [place.path]
        }
    }

    private static func texts(
        _ paths: [String],
        prose: ([String]) -> [String?]
    ) -> [GlossaryText] {
        paths.compactMap { path in
            guard let text = try? String(contentsOfFile: path, encoding: .utf8) else { return nil }
            return GlossaryText(
                path: String(path.dropFirst(SourceFile.root.path.count).drop { $0 == "/" }),
                lines: prose(text.components(separatedBy: "\n"))
            )
        }
    }
}

struct Glossary {
    /// A forbidden word, or several in a row.
    struct Term {
        var text: String
        /// The forms of each word.
        var forms: [Set<String>]

        init(_ text: Substring) {
            self.text = String(text)
            forms = text.split(separator: " ").map { word in
                Set(["", "s", "d", "ed", "ing"].map { "\(word.lowercased())\($0)" })
            }
        }
    }

    struct Finding: Equatable {
        var line: Int
        var term: String
    }

    /// In the order of the table.
    let terms: [Term]

    static let table: Glossary = {
        let url = SourceFile.root.appending(path: "CONTRIBUTING.md")
        return Glossary(page: (try? String(contentsOf: url, encoding: .utf8)) ?? "")
    }()

    /// The words in backticks in the third column of the glossary's table.
    init(page: String) {
        var isInside = false
        var terms: [Term] = []
        for line in page.components(separatedBy: "\n") {
            if line.hasPrefix("## ") { isInside = line == "## Glossary" }
            let cells = line.split(separator: "|", omittingEmptySubsequences: false)
            guard isInside, line.hasPrefix("|"), cells.count == 5 else { continue }
            for match in cells[3].matches(of: /`([^`]+)`/) { terms.append(Term(match.1)) }
        }
        self.terms = terms
    }

    /// Finds the forbidden words, also if the next word is on the next line.
    ///
    /// Code in backticks, quotations, and names of parameters and Swift files are not prose.
    func findings(in lines: [String?]) -> [Finding] {
        var words: [(text: String, line: Int)] = []
        for (index, line) in lines.enumerated() {
            // The empty word matches no term.
            guard let line else {
                words.append(("", index + 1))
                continue
            }
            let prose = line.replacing(
                /^ *- (?:Parameter )?\w+:|`[^`]*`|"[^"]*"|\w+\.swift/,
                with: " X "
            )
            for word in prose.split(whereSeparator: {
                !($0.isASCII && $0.isLetter || $0 == "'" || $0 == "-")
            }) {
                words.append((word.lowercased(), index + 1))
            }
        }
        var starts: [String: [Term]] = [:]
        for term in terms {
            for form in term.forms.first ?? [] { starts[form, default: []].append(term) }
        }
        return words.indices.flatMap { start -> [Finding] in
            let rest = words[start...]
            return (starts[words[start].text] ?? []).filter { term in
                rest.count >= term.forms.count
                    && zip(term.forms, rest).allSatisfy { forms, word in forms.contains(word.text) }
            }
            .map { Finding(line: words[start].line, term: $0.text) }
        }
    }
}

@Suite("The glossary")
struct GlossaryTests {
    @Test("no text contains a word that the glossary forbids", arguments: GlossaryText.all)
    func words(text: GlossaryText) {
        for finding in Glossary.table.findings(in: text.lines) {
            Issue.record("\(text.path):\(finding.line) has '\(finding.term)'")
        }
    }

    @Test("all texts are read, and the table forbids words")
    func complete() {
        #expect(Glossary.table.terms.count >= 20)
        for path in ["CONTRIBUTING.md", "docs/STATES.md", "deploy/man/spoolgate.8"] {
            #expect(GlossaryText.all.contains { $0.path == path }, "\(path) is not read")
        }
    }

    @Test("a forbidden word is found in each form and across lines, not in code or quotations")
    func found() {
        let glossary = Glossary(
            page: "| a | b | `c` |\n## Glossary\n| `d` | e | `let go`, f, `hear` |\n"
        )
        #expect(glossary.terms.map(\.text) == ["let go", "hear"])
        let lines = [
            "It Hears that one lets", "go.", "`let go` \"hear\" let", nil, "go hearty f",
            "   - hear: Hear.swift",
        ]
        let expected = [
            Glossary.Finding(line: 1, term: "hear"), Glossary.Finding(line: 1, term: "let go"),
        ]
        #expect(glossary.findings(in: lines) == expected)
    }
}

/// A declared name in `Sources`, as words.
struct DeclaredNames: CustomTestStringConvertible {
    let file: SourceFile

    var testDescription: String { file.path }

    /// The words that the paragraph below the glossary's table forbids in names.
    static let forbidden: Set<String> = {
        let url = SourceFile.root.appending(path: "CONTRIBUTING.md")
        let page = (try? String(contentsOf: url, encoding: .utf8)) ?? ""
        let paragraph = page.split(separator: "Names that `Sources` declares").dropFirst().first
        let list = paragraph?.split(separator: "(but in").first ?? ""
        return Set(list.matches(of: /`([a-z]+)`/).map { String($0.1) })
    }()

    /// The names of types, functions, properties, cases and parameters, with their lines.
    var names: [(name: String, line: Int)] {
        file.lines.enumerated().flatMap { index, line -> [(name: String, line: Int)] in
            let code = line.replacing(/"[^"]*"|\/\/.*/, with: " ")
            let declared = code.matches(
                of: /\b(?:func|var|let|case|class|struct|enum|protocol|typealias) +`?([A-Za-z]\w*)/
            )
            let parameters = code.matches(of: /[(,] *(?:([A-Za-z_]\w*) +)?([A-Za-z]\w*):/)
            return (declared.map(\.1) + parameters.flatMap { [$0.1, $0.2].compactMap(\.self) })
                .map { (String($0), index + 1) }
        }
    }

    static func words(of name: String) -> [String] {
        name.matches(of: /[A-Z]+(?![a-z])|[A-Z]?[a-z]+/).map { $0.0.lowercased() }
    }
}

@Suite("Names")
struct NameTests {
    /// Files of several small types without a common one.
    private static let families: Set = [
        "ASCII", "ContentEvidence", "Message", "OptionReading", "PathEvidence", "ProtocolEvidence",
        "RecordText", "TextCodings", "Time",
    ]

    @Test("no declared name contains a forbidden word", arguments: SourceFile.sources)
    func words(file: SourceFile) {
        for (name, line) in DeclaredNames(file: file).names where !name.contains("FastCGIFront") {
            for word in DeclaredNames.words(of: name) where DeclaredNames.forbidden.contains(word) {
                Issue.record("\(file.path):\(line) declares '\(name)'")
            }
        }
    }

    @Test("words of a name are found in every declaration")
    func found() {
        #expect(DeclaredNames.forbidden.count > 15)
        let file = SourceFile(
            target: "",
            path: "",
            lines: ["    func take(_ lastAnswer: Int, told: Int) { let mostURL = 1 } // ask: no"]
        )
        let words = DeclaredNames(file: file).names.flatMap { DeclaredNames.words(of: $0.name) }
        #expect(words == ["take", "most", "url", "last", "answer", "told"])
    }

    @Test("a file is named after a type in it, or a type and a part", arguments: SourceFile.sources)
    func files(file: SourceFile) {
        let name = URL(filePath: file.path).deletingPathExtension().lastPathComponent
        let type = String(name.prefix { $0 != "+" })
        let isDeclared = file.lines.contains { line in
            line.wholeMatch(
                of: /.*\b(?:struct|class|enum|actor|protocol|extension) +(?:\w+\.)*(\w[\w.]*).*/
            ).map { $0.1 == type || $0.1.hasSuffix(".\(type)") || type.hasSuffix(".\($0.1)") }
                ?? false
        }
        #expect(isDeclared || Self.families.contains(name), "\(file.path)")
    }
}
