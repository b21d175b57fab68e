// The state of one transfer between two runs of the same command, and its text.
//
// Pure. The invariant: a state has no credentials, and its text can be parsed back into the same state.

import SpoolgateCrypto
import SpoolgatePosix
import SpoolgateTextFormats

struct TransferState: Equatable {
    enum Kind: String {
        case upload, download
    }

    var kind: Kind
    /// The URL as given.
    var url: String
    /// The file's absolute path, or `-`.
    var file: String
    var method: String
    var begun: WallTime
    /// The text of the token; nil if the server has no content of the transfer.
    var token: String?
    /// The last known number of bytes that the receiving side has.
    var received: Int64 = 0
    /// The size of the content in bytes; nil if unknown.
    var total: Int64?
    /// The earliest time to start; nil to start at once.
    var notBefore: WallTime?
    /// The value of the upload's `Repr-Digest`.
    var digest: String?
    /// Why it is unknown whether the server accepted the upload; nil if it is known.
    var unknownOutcome: String?

    init(_ kind: Kind, url: String, file: String, method: String = "GET") {
        (self.kind, self.url, self.file, self.method) = (kind, url, file, method)
        begun = .now
    }

    /// The name of the state file, which is the same in each run of the same command.
    var name: String {
        let identity = [kind.rawValue, url, file, method].joined(separator: "\0")
        return Hexadecimal.text(Array(SHA256.digest(Array(identity.utf8).span.bytes).prefix(16)))
    }

    /// The state as lines of `name: value`, after a line that identifies the format.
    var text: String {
        let members: [(String, String?)] = [
            ("kind", kind.rawValue), ("url", url), ("file", file), ("method", method),
            ("begun", String(begun.seconds)), ("token", token), ("received", String(received)),
            ("total", total.map { String($0) }),
            ("not-before", notBefore.map { String($0.seconds) }), ("digest", digest),
            ("unknown-outcome", unknownOutcome),
        ]
        let lines = members.compactMap { name, value in
            value.map { "\(name): \(Self.escaped($0))\n" }
        }
        return Self.first + "\n" + lines.joined()
    }

    /// Parses `text`, ignoring unknown names.
    ///
    /// Returns nil if the text is not a complete state.
    init?(_ text: String) {
        let lines = text.split(separator: "\n", omittingEmptySubsequences: false)
        // A complete text ends with a newline.
        guard lines.first.map(String.init) == Self.first, lines.last == "" else { return nil }
        var values: [Substring: String] = [:]
        for line in lines.dropFirst().dropLast() {
            guard let colon = line.firstRange(of: ": ") else { return nil }
            let bytes = PercentText.decode(line[colon.upperBound...].utf8)
            values[line[..<colon.lowerBound]] = String(decoding: bytes, as: UTF8.self)
        }
        guard let kind = values["kind"].flatMap({ Kind(rawValue: $0) }), let url = values["url"],
            let file = values["file"], let method = values["method"],
            let begun = values["begun"].flatMap({ Int64(digits: $0) })
        else { return nil }
        self.init(kind, url: url, file: file, method: method)
        self.begun = WallTime(seconds: begun)
        token = values["token"]
        received = values["received"].flatMap { Int64(digits: $0) } ?? 0
        total = values["total"].flatMap { Int64(digits: $0) }
        notBefore = values["not-before"].flatMap { Int64(digits: $0) }
            .map { WallTime(seconds: $0) }
        digest = values["digest"]
        unknownOutcome = values["unknown-outcome"]
    }

    private static let first = "spoolgate-upload 1"

    /// Percent-encodes the bytes that would end the line, and `%` itself.
    private static func escaped(_ value: String) -> String {
        var text: [UInt8] = []
        for byte in value.utf8 {
            if byte < 0x20 || byte == 0x7f || byte == UInt8(ascii: "%") {
                text.append(contentsOf: "%\(Hexadecimal.text([byte]))".utf8)
            } else {
                text.append(byte)
            }
        }
        return String(decoding: text, as: UTF8.self)
    }
}
