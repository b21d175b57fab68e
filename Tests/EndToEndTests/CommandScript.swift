// Reads the command scripts in `Scripts`: typed commands and their output.
//
//     # title
//     upload: <id> partial offset=3 length=10    an upload in the spool; see ScriptStage
//     busy: <id>                                 another process locks the upload
//     free: <id>                                 and unlocks it
//     $ spoolgate list                           a command, run by the shell
//     80$ spoolgate list                         on a terminal of 80 columns and 24 rows
//     the whole output                           all other lines
//     2> a line on standard error
//     2> …                                       any further lines
//     ? 65                                       the exit status; 0 if absent
//
// An empty line ends the output, in which SPOOL stands for the spool's path, SETTINGS for the settings file, PLACE for
// the directory that holds them, and TIME for any time.

import Foundation

struct CommandScript {
    enum Step {
        case upload(id: String, words: [String])
        case busy(String)
        case free(String)
        case command(Typed)
    }

    struct Typed {
        var text: String
        /// The terminal's columns; nil: none.
        var columns: Int?
        var output: [String] = []
        var errors: [String] = []
        var status: Int32 = 0
    }

    struct Malformed: Error {
        var line: Int
        var text: String
    }

    private(set) var title = ""
    private(set) var steps: [Step] = []

    init(_ text: String) throws {
        var typed: Typed?
        for (index, line) in text.components(separatedBy: "\n").enumerated() {
            let malformed = Malformed(line: index + 1, text: line)
            if let (columns, command) = Self.prompt(line) {
                if let typed { steps.append(.command(typed)) }
                typed = Typed(text: command, columns: columns)
            } else if var open = typed, !line.isEmpty {
                if line.hasPrefix("2> ") {
                    open.errors.append(String(line.dropFirst(3)))
                } else if line.hasPrefix("? ") {
                    guard let status = Int32(line.dropFirst(2)) else { throw malformed }
                    open.status = status
                } else {
                    open.output.append(line)
                }
                typed = open
            } else {
                if let typed { steps.append(.command(typed)) }
                typed = nil
                try add(line, malformed)
            }
        }
        if let typed { steps.append(.command(typed)) }
        guard !title.isEmpty, !steps.isEmpty else { throw Malformed(line: 0, text: "empty") }
    }

    private static func prompt(_ line: String) -> (columns: Int?, command: String)? {
        guard let mark = line.range(of: "$ ") else { return nil }
        let columns = line[..<mark.lowerBound]
        guard columns.allSatisfy(\.isNumber) else { return nil }
        return (Int(columns), String(line[mark.upperBound...]))
    }

    private mutating func add(_ line: String, _ malformed: Malformed) throws {
        guard !line.isEmpty else { return }
        guard !line.hasPrefix("#") else {
            if title.isEmpty { title = String(line.dropFirst(2)) }
            return
        }
        let words = line.split(separator: " ").map(String.init)
        guard words.count > 1 else { throw malformed }
        switch words[0] {
        case "upload:": steps.append(.upload(id: words[1], words: Array(words[2...])))
        case "busy:": steps.append(.busy(words[1]))
        case "free:": steps.append(.free(words[1]))
        default: throw malformed
        }
    }
}
