// The format of log lines: quoted values, and that every line can be parsed.

import Logging
import Testing

@testable import SpoolgateJournal
@testable import SpoolgateRequests

@Suite struct LineHandlerTests {
    @Test("the message is first, then the upload, the other keys by name, and the reason")
    func order() {
        let line = LineHandler.pairs(
            message: "delivery deferred",
            ["reason": "no such file", "upload": "abc", "route": "default", "next-attempt": "-"]
        )
        #expect(
            line == "msg=\"delivery deferred\" upload=abc next-attempt=- route=default "
                + "reason=\"no such file\""
        )
    }

    @Test(
        "an unclear value is quoted, and escaped inside",
        arguments: [
            ("delivered", "delivered"), ("a,b:/c\\d;é😀", "a,b:/c\\d;é😀"), ("", "\"\""),
            ("no such file", "\"no such file\""), ("a=b", "\"a=b\""), ("a\"b", "\"a\\\"b\""),
            ("c:\\new dir", "\"c:\\\\new dir\""), ("a\nb", "\"a\\nb\""), ("\r\t", "\"\\r\\t\""),
            ("\u{1b}[2J", "\"\\u001b[2J\""), ("\u{9b}2J", "\"\\u009b2J\""),
            ("gpj.\u{202e}exe", "\"gpj.\\u202eexe\""), ("\u{2066}\u{200f}", "\"\\u2066\\u200f\""),
            ("\u{7f}\u{85}\u{2028}", "\"\\u007f\\u0085\\u2028\""), ("a\u{a0}b", "\"a\u{a0}b\""),
        ]
    )
    func value(_ value: String, _ written: String) throws {
        let line = LineHandler.pairs(message: "m", ["target": "\(value)", "z": "last"])
        #expect(line == "msg=m target=\(written) z=last")
        #expect(!line.contains { $0.isNewline })
        let read = try #require(Logfmt.read(line))
        #expect(read == ["msg": "m", "target": value, "z": "last"])
    }
}

enum Logfmt {
    static func read(_ line: String) -> [String: String]? {
        var pairs: [String: String] = [:]
        var rest = Substring(line).unicodeScalars[...]
        while !rest.isEmpty {
            guard let equals = rest.firstIndex(of: "=") else { return nil }
            let key = String(Substring(rest[..<equals]))
            rest = rest[rest.index(after: equals)...]
            guard let value = rest.first == "\"" ? readQuoted(&rest) : readPlain(&rest),
                rest.isEmpty || rest.removeFirst() == " "
            else { return nil }
            pairs[key] = value
        }
        return pairs
    }

    private static func readPlain(_ rest: inout Substring.UnicodeScalarView) -> String? {
        let end = rest.firstIndex(of: " ") ?? rest.endIndex
        defer { rest = rest[end...] }
        return String(Substring(rest[..<end]))
    }

    private static func readQuoted(_ rest: inout Substring.UnicodeScalarView) -> String? {
        var value = String.UnicodeScalarView()
        rest.removeFirst()
        while let scalar = rest.popFirst(), scalar != "\"" {
            guard scalar == "\\" else {
                value.append(scalar)
                continue
            }
            switch rest.popFirst() {
            case "n": value.append("\n")
            case "r": value.append("\r")
            case "t": value.append("\t")
            case "u":
                let digits = String(Substring(rest.prefix(4)))
                guard let read = UInt32(digits, radix: 16).flatMap(Unicode.Scalar.init) else {
                    return nil
                }
                value.append(read)
                rest.removeFirst(4)
            case let other?: value.append(other)
            case nil: return nil
            }
        }
        return String(value)
    }
}
