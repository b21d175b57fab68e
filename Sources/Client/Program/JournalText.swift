// What the journal of a command for several files says, line by line.
//
// Pure. The invariants: it holds no credentials; and a line that was not written whole, or whose bytes a crash changed, is
// none, because each line begins with a digest of its rest.

import SpoolgateCrypto
import SpoolgatePosix
import SpoolgateTextFormats

/// The command that a journal belongs to: the same one finds it again.
struct JournalCommand: Equatable, Sendable {
    /// The URL as it was given.
    var url: String
    /// The method.
    var method: String
    /// The files, directories and lists, by their absolute paths, and the options that decide where each file goes.
    var arguments: [String]

    /// The name of its journal in the state directory.
    var name: String {
        let identity = (["journal", url, method] + arguments).joined(separator: "\0")
        let digest = SHA256.digest(Array(identity.utf8).span.bytes).prefix(16)
        return Hexadecimal.text(Array(digest)) + Self.ending
    }

    /// What the names of journals end with.
    static let ending = ".journal"
}

/// One line of a journal.
enum JournalLine: Equatable {
    /// The command.
    case command(JournalCommand)
    /// When it was begun.
    case begun(WallTime)
    /// When it may begin.
    case notBefore(WallTime)
    /// The text of the library's token of one upload.
    case token(JournalKey, String)
    /// The upload is begun anew: its token is void.
    case anew(JournalKey)
    /// A file of this fingerprint was taken.
    case done(JournalKey, String)
    /// Why nobody knows whether the server took a file.
    case unknown(JournalKey, String)

    /// The line, without its end.
    var text: String {
        let words =
            switch self {
            case .command(let command):
                ["command", command.method, command.url] + command.arguments
            case .begun(let time): ["begun", String(time.seconds)]
            case .notBefore(let time): ["not-before", String(time.seconds)]
            case .token(let key, let text): ["token", key.path, key.url, text]
            case .anew(let key): ["anew", key.path, key.url]
            case .done(let key, let fingerprint): ["done", key.path, key.url, fingerprint]
            case .unknown(let key, let reason): ["unknown", key.path, key.url, reason]
            }
        let rest = words.map(Self.escaped).joined(separator: " ")
        return Self.check(rest[...]) + " " + rest
    }

    /// Reads a line; nil for one of a newer writer, and for one that is not whole.
    init?(_ text: Substring) {
        guard let space = text.utf8.firstIndex(of: UInt8(ascii: " ")) else { return nil }
        let rest = text[text.utf8.index(after: space)...]
        guard Self.check(rest).hasSameBytes(as: text[..<space]) else { return nil }
        let words = rest.split(separator: " ", omittingEmptySubsequences: false).map {
            String(decoding: PercentText.decode($0.utf8), as: UTF8.self)
        }
        let key = words.count > 2 ? JournalKey(path: words[1], url: words[2]) : nil
        switch (words.first, words.count, key) {
        case ("command", 3..., _):
            self = .command(
                JournalCommand(url: words[2], method: words[1], arguments: Array(words[3...]))
            )
        case ("begun", 2, _):
            guard let seconds = Int64(digits: words[1]) else { return nil }
            self = .begun(WallTime(seconds: seconds))
        case ("not-before", 2, _):
            guard let seconds = Int64(digits: words[1]) else { return nil }
            self = .notBefore(WallTime(seconds: seconds))
        case ("token", 4, let key?): self = .token(key, words[3])
        case ("anew", 3, let key?): self = .anew(key)
        case ("done", 4, let key?): self = .done(key, words[3])
        case ("unknown", 4, let key?): self = .unknown(key, words[3])
        default: return nil
        }
    }

    /// Eight digits that tell a whole line from a broken one.
    private static func check(_ text: Substring) -> String {
        Hexadecimal.text(Array(SHA256.digest(Array(text.utf8).span.bytes).prefix(4)))
    }

    /// A word: what would end it or the line, and the sign of an escape, are percent-encoded.
    private static func escaped(_ word: String) -> String {
        var text: [UInt8] = []
        for byte in word.utf8 {
            if byte <= 0x20 || byte == 0x7f || byte == UInt8(ascii: "%") {
                text.append(contentsOf: "%\(Hexadecimal.text([byte]))".utf8)
            } else {
                text.append(byte)
            }
        }
        return String(decoding: text, as: UTF8.self)
    }
}

/// What a journal knows one upload by; compared by bytes.
struct JournalKey: Hashable, Sendable {
    /// The text of the file's absolute path.
    let path: String
    /// Where the file goes.
    let url: String

    /// Whether the bytes of both are the same.
    static func == (one: JournalKey, other: JournalKey) -> Bool {
        one.path.hasSameBytes(as: other.path) && one.url.hasSameBytes(as: other.url)
    }

    /// The hash of their bytes.
    func hash(into hasher: inout Hasher) {
        hasher.combine(ExactText(path))
        hasher.combine(ExactText(url))
    }
}

/// What a journal says in all.
struct JournalContent: Sendable {
    /// What is known of one file.
    struct Entry: Equatable, Sendable {
        /// The text of the token to go on with; nil: none.
        var token: String?
        /// The fingerprint of the file that was taken; nil: none was.
        var done: String?
        /// Why nobody knows whether the server took it; nil: that is known.
        var unknownOutcome: String?

        /// Whether another run needs it.
        var isOpen: Bool { token != nil || unknownOutcome != nil }
    }

    /// The command; nil: no line says it.
    var command: JournalCommand?
    /// When it was begun.
    var begun = WallTime(seconds: 0)
    /// When it may begin; nil: at once.
    var notBefore: WallTime?
    /// What is known, file by file.
    var entries: [JournalKey: Entry] = [:]

    /// Nothing.
    init() {}

    /// Reads a journal, and passes over lines that are not whole.
    init(_ bytes: [UInt8]) {
        for line in bytes.split(separator: UInt8(ascii: "\n")) {
            let text = String(decoding: line, as: UTF8.self)
            if let line = JournalLine(text[...]) { apply(line) }
        }
    }

    /// Takes what a line says.
    mutating func apply(_ line: JournalLine) {
        switch line {
        case .command(let command): self.command = command
        case .begun(let time): begun = time
        case .notBefore(let time): notBefore = time
        case .token(let key, let text): entries[key] = Entry(token: text)
        case .anew(let key): entries[key] = nil
        case .done(let key, let fingerprint): entries[key] = Entry(done: fingerprint)
        case .unknown(let key, let reason): entries[key, default: Entry()].unknownOutcome = reason
        }
    }

    /// The lines of a journal that says the same of what another run needs, and has no file that was taken.
    var open: [JournalLine] {
        var lines: [JournalLine] = command.map { [.command($0)] } ?? []
        lines.append(.begun(begun))
        for (key, entry) in entries where entry.isOpen {
            if let token = entry.token { lines.append(.token(key, token)) }
            if let reason = entry.unknownOutcome { lines.append(.unknown(key, reason)) }
        }
        return lines
    }
}
