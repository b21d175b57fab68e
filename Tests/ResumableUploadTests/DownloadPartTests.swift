// Parts without a strong validator, or that do not match, are never combined.

import Foundation
import HTTPTypes
import SpoolgatePosix
import SpoolgateTestSupport
import Testing

@testable import ResumableUpload

@Suite("Parts of downloads")
struct DownloadPartTests {
    private typealias Reply = DownloadOrigin.Reply

    private static let changed = "Last-Modified: Sun, 22 Nov 2026 16:17:38 GMT"
    private static let later = "Date: Sun, 22 Nov 2026 16:18:38 GMT"
    private static let old = pattern(300_000)
    private static let new = Array(pattern(300_000).reversed())

    /// Has another representation after its first response.
    private func changingOrigin(_ fields: [String], cut: Int = 50_000) throws -> DownloadOrigin {
        try DownloadOrigin { asked in
            if asked.number == 0 { return .whole(Self.old, fields, cut: cut) }
            return asked.range == nil
                ? .whole(Self.new, fields) : .part(Self.new, from: asked.start, fields)
        }
    }

    static let weakNames: [[String]] = [
        [#"ETag: W/"v""#],
        [#"ETag: W/"v""#, changed, later],
        [changed],
        [changed, "Date: Sun, 22 Nov 2026 16:17:38 GMT"],
        [changed, "Date: Sun, 22 Nov 2026 16:18:37 GMT"],
        [changed, "Date: Sun, 22 Nov 2026 16:10:00 GMT"],
        [changed, "Date: yesterday"],
        ["Last-Modified: long ago", later],
        [],
    ]

    @Test(
        "without a strong validator a cut starts the file over, and says so",
        arguments: weakNames
    )
    func weak(fields: [String]) throws {
        let origin = try changingOrigin(fields)
        let directory = try ScratchDirectory()
        let outcome = DownloadOutcome(origin.url, to: .file(directory.file("film")))
        #expect(try outcome.result.get().status == .ok)
        #expect(directory.content("film") == Self.new)
        #expect(origin.ranges == [nil, nil])
        #expect(outcome.anew.count == 1)
        #expect(outcome.anew.first?.contains("no strong validator") == true)
        #expect(directory.names == ["film"])
    }

    @Test("without a strong validator a cut ends pieces as changed", arguments: weakNames)
    func weakPieces(fields: [String]) throws {
        let origin = try changingOrigin(fields)
        let taken = Monitor<[UInt8]>([])
        let outcome = DownloadOutcome(
            origin.url,
            to: .pieces { piece in taken.update { $0 += piece } }
        )
        #expect(outcome.error?.kind == .changed)
        #expect(Self.old.starts(with: taken.update { $0 }))
        #expect(outcome.download.token == nil)
    }

    @Test(
        "a strong validator resumes",
        arguments: [
            ([#"ETag: "v""#], #""v""#), ([#"ETag: "v""#, changed], #""v""#),
            ([changed, later], "Sun, 22 Nov 2026 16:17:38 GMT"),
            (
                [
                    "Last-Modified: Sunday, 22-Nov-26 16:17:38 GMT",
                    "Date: Sun Nov 22 16:18:38 2026",
                ], "Sunday, 22-Nov-26 16:17:38 GMT"
            ),
        ]
    )
    func strong(fields: [String], validator: String) throws {
        let origin = try DownloadOrigin { asked in
            asked.range == nil
                ? .whole(Self.old, fields, cut: 50_000)
                : .part(Self.old, from: asked.start, fields)
        }
        let directory = try ScratchDirectory()
        let outcome = DownloadOutcome(origin.url, to: .file(directory.file("film")))
        #expect(try outcome.result.get().status.code == 206)
        #expect(directory.content("film") == Self.old)
        #expect(origin.requests.map(\.condition) == [nil, validator])
        #expect(outcome.anew.isEmpty)
    }

    @Test("a token of an older version with only a date is not trusted")
    func oldToken() throws {
        let fields = [Self.changed, Self.later]
        let origin = try DownloadOrigin { asked in
            asked.range == nil
                ? .whole(Self.new, fields) : .part(Self.new, from: asked.start, fields)
        }
        let directory = try ScratchDirectory()
        try Data(Self.old.prefix(50_000)).write(to: URL(filePath: directory.file("film.part")))
        let text =
            "v1 download url=\(origin.url) offset=50000 validator=Sun%2C%2022%20Nov%202026%2016%3A17%3A38%20GMT"
        let token = try #require(Download.Token(text))
        let pieces = DownloadOutcome(origin.url, to: .pieces { _ in }, after: token)
        #expect(pieces.error?.kind == .changed)
        #expect(origin.requests.isEmpty)
        let outcome = DownloadOutcome(origin.url, to: .file(directory.file("film")), after: token)
        #expect(outcome.error == nil)
        #expect(origin.ranges.first == .some(nil))
        #expect(outcome.anew.first?.contains("no strong validator") == true)
        #expect(directory.content("film") == Self.new)
    }

    @Test("without new progress, retries end")
    func noProgress() throws {
        let origin = try DownloadOrigin { asked in
            .whole(Self.old, [#"ETag: W/"v""#], cut: 50_000 - asked.number)
        }
        let directory = try ScratchDirectory()
        var options = DownloadOrigin.options
        options.connection.retryFor = .milliseconds(200)
        let outcome = DownloadOutcome(
            origin.url,
            to: .file(directory.file("film")),
            options: options
        )
        #expect(outcome.error?.kind == .later)
        #expect(origin.requests.count > 1)
    }

    // MARK: Parts that do not match

    private static let names = [#"ETag: "v1""#, changed, later, "Repr-Digest: sha-256=:\(zeros):"]
    private static let zeros = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
    private static let ones = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="

    struct Wrong: Sendable, CustomTestStringConvertible {
        var testDescription: String
        fileprivate var reply: @Sendable (_ start: Int) -> DownloadOrigin.Reply

        fileprivate init(
            _ what: String,
            _ change: @escaping @Sendable (inout DownloadOrigin.Reply, Int) -> Void
        ) {
            testDescription = what
            reply = { start in
                var reply = Reply.part(DownloadPartTests.new, from: start, names)
                change(&reply, start)
                return reply
            }
        }

        fileprivate init(_ what: String, _ field: String) {
            let name = field.prefix { $0 != ":" } + ":"
            self.init(what) { reply, _ in
                reply.fields = reply.fields.map { $0.hasPrefix(name) ? field : $0 }
            }
        }
    }

    static let wrongs: [Wrong] = [
        Wrong("another strong ETag", #"ETag: "v2""#),
        Wrong("another weak ETag", #"ETag: W/"v2""#),
        Wrong("another Last-Modified", "Last-Modified: Sun, 22 Nov 2026 16:17:39 GMT"),
        Wrong("another Repr-Digest", "Repr-Digest: sha-256=:\(ones):"),
        Wrong("no Content-Range") { reply, _ in reply = reply.ranging(nil) },
        Wrong("a Content-Range that cannot be read") { reply, _ in
            reply = reply.ranging("bytes 1-2-3/300000")
        },
        Wrong("a Content-Range of another unit") { reply, start in
            reply = reply.ranging("lines \(start)-299999/300000")
        },
        Wrong("another total") { reply, start in
            reply = reply.ranging("bytes \(start)-299999/300001")
        },
        Wrong("another start") { reply, start in
            reply = reply.ranging("bytes \(start + 1)-300000/300001")
        },
        Wrong("the start alone") { reply, _ in reply = reply.ranging("bytes 0-299999/300000") },
        Wrong("an end before the start") { reply, start in
            reply = reply.ranging("bytes \(start)-\(start - 1)/300000")
        },
        Wrong("an end behind the whole") { reply, start in
            reply = reply.ranging("bytes \(start)-300000/300000")
        },
        Wrong("a longer range than content") { reply, start in
            reply.content.removeLast()
        },
        Wrong("more content than the range") { reply, start in
            reply = reply.ranging("bytes \(start)-299998/300000")
        },
        Wrong("more chunked content than the range") { reply, start in
            reply = reply.ranging("bytes \(start)-299998/300000")
            reply.hasLength = false
        },
        Wrong("several parts") { reply, _ in
            reply = reply.ranging(nil)
            reply.fields.append("Content-Type: multipart/byteranges; boundary=b")
        },
        Wrong("416 of another total") { reply, _ in
            reply = reply.ranging("bytes */49999")
            (reply.status, reply.content) = ("416 No", [])
        },
    ]

    @Test("a part that does not match starts the file over, once", arguments: wrongs)
    func mismatch(wrong: Wrong) throws {
        let origin = try DownloadOrigin { asked in
            switch asked.number {
            case 0: .whole(Self.old, Self.names, cut: 50_000)
            case 1: wrong.reply(asked.start)
            default: .whole(Self.new, Self.names)
            }
        }
        let directory = try ScratchDirectory()
        let outcome = DownloadOutcome(origin.url, to: .file(directory.file("film")))
        #expect(outcome.error == nil)
        #expect(directory.content("film") == Self.new)
        #expect(origin.ranges == [nil, "bytes=50000-", nil])
        #expect(outcome.anew.count == 1)
        #expect(directory.names == ["film"])
    }

    @Test("a part that does not match ends pieces as changed", arguments: wrongs)
    func mismatchOfPieces(wrong: Wrong) throws {
        let origin = try DownloadOrigin { asked in
            asked.number == 0
                ? .whole(Self.old, Self.names, cut: 50_000) : wrong.reply(asked.start)
        }
        let taken = Monitor(0)
        let outcome = DownloadOutcome(
            origin.url,
            to: .pieces { piece in taken.update { $0 += piece.count } }
        )
        #expect(outcome.error?.kind == .changed)
        #expect(origin.requests.count == 2)
        #expect(outcome.download.token == nil)
        // Excess chunked content is detected only at its end.
        #expect(taken.update { $0 } == 50_000 || wrong.testDescription.contains("chunked"))
    }

    @Test("parts that never match end with an error, and leave nothing", arguments: wrongs)
    func neverMatches(wrong: Wrong) throws {
        let origin = try DownloadOrigin { asked in
            asked.range == nil
                ? .whole(Self.old, Self.names, cut: 50_000) : wrong.reply(asked.start)
        }
        let directory = try ScratchDirectory()
        let outcome = DownloadOutcome(origin.url, to: .file(directory.file("film")))
        #expect(outcome.error?.kind == .changed)
        #expect(outcome.error?.reason.contains("2 times before") == true)
        #expect(outcome.anew.count == 2)
        #expect(origin.requests.count == 6)
        #expect(outcome.download.token == nil)
        #expect(directory.names.isEmpty)
    }

    @Test("an unrequested part is not the whole")
    func unasked() throws {
        let origin = try DownloadOrigin { _ in
            Reply.part(Self.old, from: 0, Self.names).ranging("bytes 0-299999/600000")
        }
        let directory = try ScratchDirectory()
        let outcome = DownloadOutcome(origin.url, to: .file(directory.file("film")))
        #expect(outcome.error?.kind == .changed)
        #expect(directory.names.isEmpty)
    }

    @Test("a part with another total or date is detected, in another process too")
    func inAnotherProcess() throws {
        let fields = [#"ETag: "v1""#, Self.changed, Self.later]
        let origin = try DownloadOrigin { asked in
            asked.range == nil
                ? .whole(Self.new, fields)
                : Reply.part(Self.new, from: asked.start, fields)
                    .ranging("bytes \(asked.start)-299999/300000")
        }
        for (total, date) in [
            (300_001 as Int64?, nil), (nil, "Sun, 22 Nov 2026 16:17:37 GMT"),
        ] {
            let directory = try ScratchDirectory()
            try Data(Self.old.prefix(50_000)).write(to: URL(filePath: directory.file("film.part")))
            let token = Download.Token(
                url: origin.url,
                offset: 50_000,
                validator: #""v1""#,
                lastModified: date,
                total: total
            )
            let kept = try #require(Download.Token(token.text))
            #expect(kept == token)
            let outcome = DownloadOutcome(
                origin.url,
                to: .file(directory.file("film")),
                after: kept
            )
            #expect(outcome.anew.count == 1)
            #expect(directory.content("film") == Self.new)
        }
    }

    @Test("short parts and unknown totals add up to the whole")
    func less() throws {
        for isReported in [true, false] {
            let origin = try DownloadOrigin { asked in
                var whole = Reply.whole(Self.old, [#"ETag: "v1""#], cut: 50_000)
                whole.hasLength = false
                if asked.range == nil { return whole }
                let end = min(asked.start + 70_000, 300_000)
                let total = isReported ? "300000" : "*"
                if asked.start == 300_000 {
                    return Reply(
                        status: "416 No",
                        fields: ["Content-Range: bytes */300000"],
                        content: []
                    )
                }
                return Reply(
                    status: "206 Part",
                    fields: [
                        #"ETag: "v1""#, "Content-Range: bytes \(asked.start)-\(end - 1)/\(total)",
                    ],
                    content: Array(Self.old[asked.start..<end])
                )
            }
            let directory = try ScratchDirectory()
            let outcome = DownloadOutcome(origin.url, to: .file(directory.file("film")))
            #expect(outcome.error == nil)
            #expect(directory.content("film") == Self.old)
            #expect(outcome.anew.isEmpty)
        }
    }

    @Test("the caller's own Range is refused")
    func ownRange() {
        var options = DownloadOrigin.options
        options.fields[.range] = "bytes=0-9"
        let outcome = DownloadOutcome(
            "http://127.0.0.1:1/f",
            to: .pieces { _ in },
            options: options
        )
        #expect(outcome.error?.kind == .invalid)
    }
}
