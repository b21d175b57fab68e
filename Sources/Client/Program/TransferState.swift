// What is kept of one transfer between two runs of the same command, and its text.
//
// Pure. The invariant: it holds no credentials, and the text of one is read as the same one.

import SpoolgateCrypto
import SpoolgatePosix
import SpoolgateTextFormats

/// One transfer that can be gone on with.
struct TransferState: Equatable {
    /// Which way it goes.
    enum Kind: String {
        case upload, download
    }

    var kind: Kind
    /// The URL as it was given.
    var url: String
    /// The file's absolute path, or `-`.
    var file: String
    /// The method of an upload.
    var method: String
    /// When it was begun.
    var begun: WallTime
    /// The text of the library's token; nil: the server has nothing.
    var token: String?
    /// Bytes that the other side has, as far as was known.
    var received: Int64 = 0
    /// Bytes in all; nil: not known.
    var total: Int64?
    /// When it may begin; nil: at once.
    var notBefore: WallTime?
    /// The value of the upload's `Repr-Digest`.
    var digest: String?
    /// Why nobody knows whether the server took it; nil: it is known.
    var unknownOutcome: String?

    init(_ kind: Kind, url: String, file: String, method: String = "GET") {
        (self.kind, self.url, self.file, self.method) = (kind, url, file, method)
        begun = .now
    }

    /// The name that the same command finds it by.
    var name: String {
        let identity = [kind.rawValue, url, file, method].joined(separator: "\0")
        return Hexadecimal.text(Array(SHA256.digest(Array(identity.utf8).span.bytes).prefix(16)))
    }

    /// Lines of `name: value`, behind one that says what they are.
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

    /// Reads a text, and passes over names of a newer writer; nil for what is none.
    init?(_ text: String) {
        let lines = text.split(separator: "\n", omittingEmptySubsequences: false)
        // A last line that is whole has a line end.
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

    /// A value in one line: what would end it, and the sign of an escape, are percent-encoded.
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
