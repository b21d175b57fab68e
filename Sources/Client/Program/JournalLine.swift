// The lines of the journal of a command for several files.
//
// Pure. The invariants: the journal has no credentials; an incomplete or damaged line is ignored, because each line
// begins with a digest of the rest.

import SpoolgateCrypto
import SpoolgatePosix
import SpoolgateTextFormats

/// The identity of a command, by which the same command finds its journal.
struct JournalCommand: Equatable, Sendable {
    /// The URL as given.
    var url: String
    var method: String
    /// The absolute paths of files, directories and lists, and the options that determine each file's URL.
    var arguments: [String]

    var name: String {
        let identity = (["journal", url, method] + arguments).joined(separator: "\0")
        let digest = SHA256.digest(Array(identity.utf8).span.bytes).prefix(16)
        return Hexadecimal.text(Array(digest)) + Self.ending
    }

    static let ending = ".journal"
}

enum JournalLine: Equatable {
    case command(JournalCommand)
    case begun(WallTime)
    case notBefore(WallTime)
    /// The text of the token that resumes a file's upload.
    case token(JournalKey, String)
    /// The upload starts again from its beginning; its earlier token is invalid.
    case anew(JournalKey)
    /// The file was accepted; the text is its fingerprint at that time.
    case done(JournalKey, String)
    /// It is unknown whether the server accepted the file; the text is the reason.
    case unknown(JournalKey, String)

    /// The line, without the newline.
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

    /// Reads a line; returns nil if the line is incomplete, damaged or from a newer version.
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

    /// Returns eight hexadecimal digits of a digest, which detect an incomplete line.
    private static func check(_ text: Substring) -> String {
        Hexadecimal.text(Array(SHA256.digest(Array(text.utf8).span.bytes).prefix(4)))
    }

    /// Percent-encodes the bytes that would end the word or the line, and `%` itself.
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

/// The file and URL that identify an upload in the journal; two keys are compared by bytes.
struct JournalKey: Hashable, Sendable {
    /// The file's absolute path, as `FilePath.text`.
    let path: String
    let url: String

    static func == (one: JournalKey, other: JournalKey) -> Bool {
        one.path.hasSameBytes(as: other.path) && one.url.hasSameBytes(as: other.url)
    }

    func hash(into hasher: inout Hasher) {
        hasher.combine(ExactText(path))
        hasher.combine(ExactText(url))
    }
}

struct JournalContent: Sendable {
    struct Entry: Equatable, Sendable {
        var token: String?
        /// The file's fingerprint when it was accepted; nil if the file was not accepted.
        var done: String?
        /// Why it is unknown whether the server accepted the file; nil if it is known.
        var unknownOutcome: String?

        /// Whether another run needs this entry.
        var isOpen: Bool { token != nil || unknownOutcome != nil }
    }

    /// The command; nil if the journal is new.
    var command: JournalCommand?
    var begun = WallTime(seconds: 0)
    /// The earliest start of the command; nil to start at once.
    var notBefore: WallTime?
    var entries: [JournalKey: Entry] = [:]

    init() {}

    init(_ bytes: [UInt8]) {
        for line in bytes.split(separator: UInt8(ascii: "\n")) {
            let text = String(decoding: line, as: UTF8.self)
            if let line = JournalLine(text[...]) { apply(line) }
        }
    }

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

    /// The lines that another run needs.
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
