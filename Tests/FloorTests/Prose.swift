// The repository's prose by kind, and its words that mark stilted English.

import Foundation

struct Prose {
    /// CONTRIBUTING.md has the alternatives.
    enum Mark: String, CaseIterable {
        case what, `where`, whoever
        case ofWhich = "of which"
        case fronted, coded
        case `if`
    }

    private(set) var words = 0
    private var counts: [Mark: Int] = [:]

    /// Occurrences per 1,000 words.
    func rate(of mark: Mark) -> Double {
        words == 0 ? 0 : 1000 * Double(counts[mark, default: 0]) / Double(words)
    }

    /// Counts a text of whole sentences.
    mutating func add(_ text: some StringProtocol) {
        // Pairs of words do not cross the end of a sentence. A question may contain "what".
        for sentence in text.split(whereSeparator: { ".:;?!".contains($0) }) {
            let isQuestion = sentence.endIndex < text.endIndex && text[sentence.endIndex] == "?"
            let tokens = sentence.split { !($0.isASCII && $0.isLetter || $0 == "'" || $0 == "-") }
                .filter { $0.first?.isLetter == true }
            words += tokens.count
            guard let first = tokens.first else { continue }
            if Self.fronting.contains(String(first)), tokens.dropFirst().first != "course" {
                counts[.fronted, default: 0] += 1
            }
            var previous = ""
            for token in tokens {
                let word = token.lowercased()
                for mark in Self.marks(of: word, after: previous)
                where !(isQuestion && mark == .what) {
                    counts[mark, default: 0] += 1
                }
                previous = word
            }
        }
    }

    private static func marks(of word: String, after previous: String) -> [Mark] {
        var marks: [Mark] = []
        if let mark = single[word] { marks.append(mark) }
        if let mark = pairs["\(previous) \(word)"] { marks.append(mark) }
        return marks
    }

    private static let fronting: Set = [
        "Where", "What", "Whoever", "Of", "Whichever", "Behind", "Beside", "Under", "Below",
        "Above",
    ]

    private static let single: [String: Mark] = {
        var table: [String: Mark] = ["what": .what, "where": .where, "if": .if]
        for word in ["whoever", "whatever", "whichever", "whom", "somebody", "nobody", "anybody"] {
            table[word] = .whoever
        }
        for word in ["mend", "mends", "mended", "hear", "hears", "heard", "beside"] {
            table[word] = .coded
        }
        return table
    }()

    private static let pairs: [String: Mark] = {
        var table: [String: Mark] = [:]
        for word in ["which", "whom", "it", "that", "them", "those"] {
            table["of \(word)"] = .ofWhich
        }
        for word in ["for", "by", "from"] { table["\(word) which"] = .ofWhich }
        table["behind it"] = .ofWhich
        for word in ["let", "lets"] { table["\(word) go"] = .coded }
        for word in ["take", "takes", "taken", "took"] { table["\(word) up"] = .coded }
        for word in ["come", "comes"] { table["\(word) back"] = .coded }
        for pair in ["for good", "at rest", "put right", "set right"] { table[pair] = .coded }
        return table
    }()
}

extension Prose {
    /// The kinds, each with the sum of its files.
    static let kinds: [String: Prose] = {
        var kinds: [String: Prose] = [:]
        for (top, files) in [
            ("Sources", SourceFile.sources), ("Tests", SourceFile.all(in: "Tests")),
        ] {
            for file in files {
                let text = SwiftText(file.lines)
                kinds["comments in \(top)", default: Prose()].add(text.comments)
                for message in text.messages {
                    kinds["messages in \(top)", default: Prose()].add(message)
                }
            }
        }
        let root = SourceFile.root
        for path in files(in: root) where path.hasSuffix(".md") {
            guard let text = try? String(contentsOfFile: path, encoding: .utf8) else { continue }
            kinds["pages", default: Prose()].add(withoutCode(text))
        }
        for path in files(in: root.appending(path: "deploy/man")) {
            guard let text = try? String(contentsOfFile: path, encoding: .utf8) else { continue }
            kinds["manual pages", default: Prose()].add(withoutMacros(text))
        }
        return kinds
    }()

    static func files(in folder: URL) -> [String] {
        let skipped: Set = [".build", ".git", ".run", "Sources", "Tests", "nginx", "deploy"]
        let names = (try? FileManager.default.contentsOfDirectory(atPath: folder.path)) ?? []
        return names.sorted().filter { !skipped.contains($0) }.flatMap { name -> [String] in
            let place = folder.appending(path: name)
            var isFolder: ObjCBool = false
            _ = FileManager.default.fileExists(atPath: place.path, isDirectory: &isFolder)
            return isFolder.boolValue ? files(in: place) : [place.path]
        }
    }

    private static func withoutCode(_ text: String) -> String {
        var isCode = false
        let lines = text.split(separator: "\n", omittingEmptySubsequences: false).filter { line in
            if line.hasPrefix("```") { isCode.toggle() }
            return !isCode && !line.hasPrefix("```")
        }
        return lines.joined(separator: "\n").split(separator: "`", omittingEmptySubsequences: false)
            .enumerated().map { $0.offset.isMultiple(of: 2) ? String($0.element) : "X" }.joined()
    }

    private static func withoutMacros(_ text: String) -> String {
        let skipped = [".\\\"", ".Dd", ".Dt", ".Os", ".Sh", ".Ss", ".Bl", ".El", ".Bd", ".Ed"]
        let inline: Set = [
            "Ic", "Fl", "Ar", "Li", "Pa", "Xr", "Cm", "Sy", "Em", "Dq", "Ql", "No", "Ns", "Pq",
            "Ev", "Nm", "Va",
        ]
        return text.split(separator: "\n").filter { line in !skipped.contains { line.hasPrefix($0) }
        }
        .map { line in
            line.split(separator: " ").filter { !$0.hasPrefix(".") && !inline.contains(String($0)) }
                .joined(separator: " ")
        }.joined(separator: "\n")
    }
}

struct SwiftText {
    /// Comments on lines of their own.
    var comments = ""
    /// Literals of three words or more.
    var messages: [String] = []

    init(_ lines: [String]) {
        for line in lines {
            let code = line.drop { $0 == " " }
            if code.hasPrefix("//") {
                comments += code.drop { $0 == "/" } + "\n"
            } else {
                add(literalsOf: code)
            }
        }
    }

    private mutating func add(literalsOf code: Substring) {
        var literal: String?
        var isEscaped = false
        for character in code {
            guard literal != nil else {
                if character == "\"" { literal = "" }
                continue
            }
            if character == "\"", !isEscaped {
                if let text = literal, text.split(separator: " ").count >= 3 {
                    messages.append(text)
                }
                literal = nil
            } else {
                literal?.append(character)
            }
            isEscaped = character == "\\" && !isEscaped
        }
    }
}
