// The grammar of nginx's files: words, quotes, comments, `;` and blocks.
//
// Pure. NginxDump.swift resolves includes.

struct NginxReader {
    private var rest: Substring
    private var line = 1
    private let file: String

    init(_ text: String, file: String) {
        rest = Substring(text)
        self.file = file
    }

    /// Parses the directives up to the end of the block or the file.
    mutating func directives() -> [NginxDirective] {
        var all: [NginxDirective] = []
        var words: [String] = []
        var start = 1
        while let token = next() {
            switch token {
            case .word(let word):
                if words.isEmpty { start = line }
                words.append(word)
            case .end:
                if !words.isEmpty {
                    all.append(NginxDirective(words: words, file: file, line: start, block: nil))
                }
                words = []
            case .open:
                let block = directives()
                all.append(NginxDirective(words: words, file: file, line: start, block: block))
                words = []
            case .close: return all
            }
        }
        return all
    }

    private enum Token {
        case word(String)
        case end
        case open
        case close
    }

    private mutating func next() -> Token? {
        while let character = rest.first {
            if character == "\n" { line += 1 }
            if character == "#" {
                rest = rest.drop { $0 != "\n" }
            } else if character.isWhitespace {
                rest.removeFirst()
            } else {
                break
            }
        }
        guard let character = rest.first else { return nil }
        switch character {
        case ";":
            rest.removeFirst()
            return .end
        case "{":
            rest.removeFirst()
            return .open
        case "}":
            rest.removeFirst()
            return .close
        case "\"", "'": return .word(quoted(by: rest.removeFirst()))
        default: return .word(plain())
        }
    }

    private mutating func quoted(by quote: Character) -> String {
        var word = ""
        while let character = rest.popFirst(), character != quote {
            if character == "\n" { line += 1 }
            if character == "\\" { word += escaped() } else { word.append(character) }
        }
        return word
    }

    /// Reads an escape sequence after its backslash, and returns the text for it.
    ///
    /// Before other characters, such as a dot in a regular expression, the backslash stays.
    private mutating func escaped() -> String {
        guard let character = rest.popFirst() else { return "\\" }
        if character == "\n" { line += 1 }
        switch character {
        case "\"", "'", "\\": return String(character)
        case "t": return "\t"
        case "r": return "\r"
        case "n": return "\n"
        default: return "\\" + String(character)
        }
    }

    private mutating func plain() -> String {
        var word = ""
        while let character = rest.first, !character.isWhitespace, character != ";" {
            // `${name}` is part of a word; any other `{` begins a block.
            if character == "{", word.last != "$" { break }
            rest.removeFirst()
            if character == "\\" {
                word += escaped()
                continue
            }
            word.append(character)
            if character == "{" {
                while let inner = rest.popFirst() {
                    word.append(inner)
                    if inner == "}" { break }
                }
            }
        }
        return word
    }
}
