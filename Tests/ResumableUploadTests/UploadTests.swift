// Uploads to a server that reacts as ordered: interruptions, lost responses, refusals, and actions forbidden to
// clients.

import Foundation
import HTTPTypes
import SpoolgatePosix
import SpoolgateTestSupport
import Testing

@testable import ResumableUpload

/// Bytes that depend on their offset.
func pattern(_ count: Int) -> [UInt8] {
    (0..<count).map { UInt8(truncatingIfNeeded: $0 ^ ($0 >> 8) ^ ($0 >> 15)) }
}

/// Options with immediate retries.
func quickOptions(_ creation: Upload.Options.Creation = .careful) -> Upload.Options {
    var options = Upload.Options()
    options.creation = creation
    options.plainBelow = 0
    options.window = 1 << 17
    options.connection.firstPause = .milliseconds(5)
    options.connection.retryFor = .seconds(60)
    options.connection.usesProxies = false
    return options
}

func upload(
    _ body: Upload.Body,
    to url: String,
    _ options: Upload.Options,
    from token: Upload.Token? = nil
) async -> (result: Result<Transfer.Response, TransferError>, events: [Upload.Event]) {
    let events = Monitor<[Upload.Event]>([])
    let take: @Sendable (Upload.Event) -> Void = { event in events.update { $0.append(event) } }
    let upload =
        token.map { Upload.resume(from: $0, body: body, options: options, onEvent: take) }
        ?? Upload(body, to: url, options: options, onEvent: take)
    // Not `perform`: a test runs on one of the few threads that tasks share.
    do {
        let response = try await upload.run()
        return (.success(response), events.update { $0 })
    } catch {
        let error = error as? TransferError ?? TransferError(.invalid, "no transfer's: \(error)")
        return (.failure(error), events.update { $0 })
    }
}

extension Result where Failure == TransferError {
    var error: TransferError? { if case .failure(let error) = self { error } else { nil } }
}

func pieces(_ bytes: [UInt8], of size: Int) -> AsyncStream<[UInt8]> {
    AsyncStream { continuation in
        var rest = bytes[...]
        while !rest.isEmpty {
            continuation.yield(Array(rest.prefix(size)))
            rest = rest.dropFirst(size)
        }
        continuation.finish()
    }
}

private let newest = Upload.Options.interopVersions.upperBound

@Suite("Uploads")
struct UploadTests {
    @Test(
        "each version sends what its draft requires",
        arguments: [nil] + Upload.Options.interopVersions.map(Optional.init)
    )
    func versions(version: Int?) async throws {
        let origin = try UploadOrigin()
        var options = quickOptions()
        options.interopVersion = version
        options.fields[.contentType] = "image/png"
        options.fields[.authorization] = "Bearer me"
        let bytes = pattern(300_000)
        let (result, _) = await upload(.bytes(bytes), to: origin.base + "/f", options)
        let response = try result.get()
        #expect(response.status == .created && response.content == Array("taken".utf8))
        #expect(origin.taken == [bytes])
        #expect(origin.asked == ["POST /f", "PATCH /u/1"])
        let (creation, append) = (origin.requests[0], origin.requests[1])
        let marker = version == 3 ? "Upload-Incomplete" : "Upload-Complete"
        #expect(creation.values(marker) == [version == 3 ? "?1" : "?0"])
        #expect(append.values(marker) == [version == 3 ? "?0" : "?1"])
        #expect(creation.values("Content-Type") == ["image/png"])
        #expect(creation.values("Upload-Length") == ["300000"])
        let type = version.map { $0 >= 6 } ?? true ? ["application/partial-upload"] : []
        #expect(append.values("Content-Type") == type)
        for request in [creation, append] {
            let named = version.map { ["\($0)"] } ?? []
            #expect(request.values("Upload-Draft-Interop-Version") == named)
            #expect(request.values("Authorization") == ["Bearer me"])
            #expect(request.values("Expect").isEmpty)
        }
    }

    @Test("a request that waits for a 104 asks to be forwarded immediately (RFC 10036)")
    func incremental() async throws {
        for creation in [Upload.Options.Creation.careful, .optimistic, .plain] {
            let origin = try UploadOrigin()
            let (result, _) = await upload(
                .bytes(pattern(300_000)),
                to: origin.base + "/f",
                quickOptions(creation)
            )
            _ = try result.get()
            let told = origin.requests.map { $0.values("Incremental") }
            #expect(told == (creation == .optimistic ? [["?1"]] : told.map { _ in [] }))
        }
    }

    @Test("a small body is one ordinary request without any protocol field")
    func small() async throws {
        let origin = try UploadOrigin()
        var options = quickOptions()
        options.plainBelow = 1 << 20
        let bytes = pattern(50_000)
        for body in [Upload.Body.bytes(bytes), .stream(pieces(bytes, of: 7_000))] {
            #expect(
                try await upload(body, to: origin.base + "/f", options).result.get().isLost == false
            )
        }
        #expect(origin.taken == [bytes, bytes])
        #expect(origin.asked == ["POST /f", "POST /f"])
        for request in origin.requests {
            #expect(request.fieldLines.allSatisfy { !$0.lowercased().hasPrefix("upload-") })
        }
    }

    @Test(
        "cut anywhere, it continues at the server's offset",
        arguments: [Upload.Options.Creation.careful, .optimistic],
        [false, true]
    )
    func cut(creation: Upload.Options.Creation, isStream: Bool) async throws {
        let origin = try UploadOrigin { request in
            request.method != "HEAD" && request.number < 12
                ? .cut(after: 10_000 * (1 + request.number)) : .serve
        }
        let bytes = pattern(700_000)
        let body: Upload.Body = isStream ? .stream(pieces(bytes, of: 9_999)) : .bytes(bytes)
        let (result, events) = await upload(body, to: origin.base + "/f", quickOptions(creation))
        #expect(try result.get().status == .created)
        #expect(origin.taken == [bytes])
        let received = events.compactMap {
            if case .progress(let progress) = $0 { progress.received } else { nil }
        }
        #expect(received == received.sorted() && received.contains { $0 > 0 })
    }

    @Test("a lost response is fetched, and the upload is accepted once")
    func lostAnswer() async throws {
        let origin = try UploadOrigin { $0.number == 1 ? .loseAnswer : .serve }
        let bytes = pattern(300_000)
        let (result, events) = await upload(.bytes(bytes), to: origin.base + "/f", quickOptions())
        #expect(try result.get().content == Array("taken".utf8))
        #expect(origin.taken == [bytes])
        #expect(origin.asked == ["POST /f", "PATCH /u/1", "HEAD /u/1", "PATCH /u/1"])
        #expect(origin.requests[3].content.isEmpty)
        let tokens = events.compactMap { if case .resumable(let token) = $0 { token } else { nil } }
        #expect(tokens.map(\.mayBeComplete) == [false, true])
    }

    @Test("a response that the server has removed is reported as lost")
    func answerGone() async throws {
        let origin = try UploadOrigin {
            switch $0.number {
            case 1: .loseAnswer
            case 3: .response("410 Gone")
            default: .serve
            }
        }
        let (result, _) = await upload(
            .bytes(pattern(300_000)),
            to: origin.base + "/f",
            quickOptions()
        )
        #expect(try result.get().isLost)
        #expect(origin.taken.count == 1)
    }

    @Test("an upload that the server reported as complete succeeds if its resource is then gone")
    func goneAfterCompletion() async throws {
        let origin = try UploadOrigin {
            switch $0.number {
            case 1, 3: .loseAnswer
            case 4: .response("404 Not Found")
            default: .serve
            }
        }
        let (result, _) = await upload(
            .bytes(pattern(300_000)),
            to: origin.base + "/f",
            quickOptions()
        )
        #expect(origin.asked.suffix(3) == ["HEAD /u/1", "PATCH /u/1", "HEAD /u/1"])
        let response = try result.get()
        #expect((response.isLost, response.status) == (true, .noContent))
        #expect(origin.taken.count == 1)
    }

    @Test("an empty body is an upload too if no body is small", arguments: [false, true])
    func empty(isStream: Bool) async throws {
        let origin = try UploadOrigin()
        let body: Upload.Body = isStream ? .stream(pieces([], of: 1)) : .bytes([])
        let (result, _) = await upload(body, to: origin.base + "/f", quickOptions())
        _ = try result.get()
        #expect(origin.taken == [[]])
        let isMarked = origin.requests.allSatisfy { !$0.values("Upload-Complete").isEmpty }
        #expect(isMarked, "\(origin.asked)")
    }

    @Test(
        "a resource that disappears after the last byte is not restarted, unless repeating is safe"
    )
    func goneAfterAll() async throws {
        for method in [HTTPRequest.Method.post, .put] {
            let origin = try UploadOrigin {
                switch $0.number {
                case 1: .loseAnswer
                case 2: .response("404 Not Found")
                default: .serve
                }
            }
            var options = quickOptions()
            options.method = method
            let (result, events) = await upload(
                .bytes(pattern(300_000)),
                to: origin.base + "/f",
                options
            )
            let anew = events.contains { if case .begunAnew = $0 { true } else { false } }
            #expect(anew == (method == .put))
            #expect(result.error?.kind == (method == .put ? nil : .unknownOutcome))
            #expect(origin.taken.count == (method == .put ? 2 : 1))
        }
    }

    @Test("an ordinary request without a response is repeated only if that is safe")
    func plainWithoutAnswer() async throws {
        for (method, key, times) in [
            (HTTPRequest.Method.post, nil, 1), (.post, "\"k\"", 2), (.put, nil, 2),
        ] as [(HTTPRequest.Method, String?, Int)] {
            let origin = try UploadOrigin { $0.number == 0 ? .loseAnswer : .serve }
            var options = quickOptions(.plain)
            options.method = method
            if let key { options.fields[.init("Idempotency-Key")!] = key }
            let (result, _) = await upload(.bytes(pattern(3_000)), to: origin.base + "/f", options)
            #expect(result.error?.kind == (times == 1 ? .unknownOutcome : nil))
            #expect(origin.taken.count == times)
        }
        let origin = try UploadOrigin { $0.number == 0 ? .cut(after: 50_000) : .serve }
        let (result, _) = await upload(
            .bytes(pattern(9 << 20)),
            to: origin.base + "/f",
            quickOptions(.plain)
        )
        #expect(try result.get().content == Array("plain".utf8))
        #expect(origin.taken.count == 1)
    }

    @Test(
        "a refused version is repeated once with 6, and resumed with it",
        arguments: [Upload.Options.Creation.careful, .optimistic],
        [400, 412]
    )
    func commonVersion(creation: Upload.Options.Creation, status: Int) async throws {
        let origin = try UploadOrigin { request in
            request.values("Upload-Draft-Interop-Version") == ["6"]
                ? .serve : .response("\(status) No")
        }
        let bytes = pattern(300_000)
        let options = quickOptions(creation)
        for body in [Upload.Body.bytes(bytes), .stream(pieces(bytes, of: 7_000))] {
            let (result, events) = await upload(body, to: origin.base + "/f", options)
            #expect(try result.get().status == .created)
            let versions = events.compactMap {
                if case .resumable(let token) = $0 { token.interopVersion } else { nil }
            }
            #expect(!versions.isEmpty && versions.allSatisfy { $0 == 6 })
        }
        #expect(origin.taken == [bytes, bytes])
        #expect(origin.asked.filter { $0 == "POST /f" }.count == 4)
        let refusing = try UploadOrigin { _ in .response("\(status) No", content: "my words") }
        let refused = await upload(.bytes(bytes), to: refusing.base + "/f", options).result
        #expect(refused.error?.kind == .refused)
        #expect(refused.error?.response?.content == Array("my words".utf8))
        #expect(refusing.asked.count == 2)
    }

    @Test("400 from a server that created the upload resource, or names the source, is final")
    func versionKnown() async throws {
        for fields in [
            "HTTP/1.1 104 Yes\r\nLocation: /u/9\r\nUpload-Draft-Interop-Version: \(newest)\r\n\r\n"
                + "HTTP/1.1 400 No\r\n",
            "HTTP/1.1 400 No\r\nUpload-Complete: ?1\r\n",
            "HTTP/1.1 400 No\r\nUpload-Complete: ?0\r\n",
        ] {
            let origin = try LoopbackOrigin { connection in
                while var request = try connection.receiveHead() {
                    try connection.receiveContent(of: &request)
                    try connection.send(fields + "Content-Length: 0\r\n\r\n")
                }
            }
            let (result, _) = await upload(
                .bytes(pattern(300_000)),
                to: origin.base + "/f",
                quickOptions(.optimistic)
            )
            #expect(result.error?.kind == .refused)
            #expect(origin.requests.count == 1)
        }
    }

    @Test("a server that takes the empty creation for the upload is unsupported")
    func unsupported() async throws {
        let origin = try UploadOrigin { _ in .response("201 Created", ["Location: /made/1"]) }
        let (result, _) = await upload(
            .bytes(pattern(300_000)),
            to: origin.base + "/f",
            quickOptions()
        )
        #expect(result.error?.kind == .unsupported)
        #expect(origin.asked == ["POST /f"])
    }

    @Test("temporary refusals are retried after the server's delay, with a limit")
    func later() async throws {
        let origin = try UploadOrigin { request in
            switch request.number {
            case 0: .response("503 Busy", ["Retry-After: 1"])
            case 2: .response("429 Slow", ["Upload-Complete: ?0"])
            case 3: .response("423 Locked")
            default: .serve
            }
        }
        let (result, events) = await upload(
            .bytes(pattern(300_000)),
            to: origin.base + "/f",
            quickOptions()
        )
        #expect(try result.get().status == .created)
        #expect(
            origin.asked == [
                "POST /f", "POST /f", "PATCH /u/1", "HEAD /u/1", "HEAD /u/1", "PATCH /u/1",
            ]
        )
        let waits = events.compactMap {
            if case .waiting(let pause, _) = $0 { pause } else { nil }
        }
        #expect(waits.count == 3 && waits[0] == .seconds(1) && waits[1] < .seconds(1))

        let busy = try UploadOrigin { _ in .response("503 Busy", ["Retry-After: 3600"]) }
        let error = await upload(.bytes(pattern(9)), to: busy.base + "/f", quickOptions()).result
            .error
        #expect(error?.kind == .later && error?.response?.status.code == 503)
        #expect(busy.asked.count == 1)
    }

    /// The expected repetition of a whole-body request after this first response.
    struct Repetition: Sendable, CustomTestStringConvertible {
        var status: Int
        /// Whether the response is the gateway's, and whether it requests another attempt.
        var isGateways = false
        var asks = false
        /// Whether POST, POST with a key and PUT are sent again.
        var isRepeated: [Bool]

        var testDescription: String {
            "\(status)\(isGateways ? " of the gateway" : "")\(asks ? " that asks for another" : "")"
        }
    }

    @Test(
        "an ordinary request is sent again if nothing was kept, or if repeating is safe",
        arguments: [
            Repetition(status: 408, isRepeated: [true, true, true]),
            Repetition(status: 423, isRepeated: [true, true, true]),
            Repetition(status: 425, isRepeated: [true, true, true]),
            Repetition(status: 429, isRepeated: [true, true, true]),
            Repetition(status: 503, isRepeated: [true, true, true]),
            Repetition(status: 502, isRepeated: [false, true, true]),
            Repetition(status: 504, isRepeated: [false, true, true]),
            Repetition(status: 504, isGateways: true, isRepeated: [false, true, true]),
            Repetition(status: 500, isRepeated: [false, false, false]),
            Repetition(status: 507, isGateways: true, isRepeated: [false, false, false]),
            Repetition(status: 502, asks: true, isRepeated: [false, true, true]),
            Repetition(status: 500, asks: true, isRepeated: [false, true, true]),
            Repetition(status: 502, isGateways: true, asks: true, isRepeated: [true, true, true]),
            Repetition(status: 507, isGateways: true, asks: true, isRepeated: [true, true, true]),
            Repetition(
                status: 413,
                isGateways: true,
                asks: true,
                isRepeated: [false, false, false]
            ),
            Repetition(
                status: 501,
                isGateways: true,
                asks: true,
                isRepeated: [false, false, false]
            ),
        ]
    )
    func ordinaryAgain(repetition: Repetition) async throws {
        let problem = #"{"title":"x","status":\#(repetition.status),"code":"y"}"#
        let fields =
            (repetition.isGateways ? ["Content-Type: application/problem+json"] : [])
            + (repetition.asks ? ["Retry-After: 1"] : [])
        let ways: [(HTTPRequest.Method, String?)] = [(.post, nil), (.post, "\"k\""), (.put, nil)]
        for ((method, key), isRepeated) in zip(ways, repetition.isRepeated) {
            let origin = try UploadOrigin { request in
                guard request.number == 0 else { return .serve }
                let content = repetition.isGateways ? problem : "no"
                return .response("\(repetition.status) No", fields, content: content)
            }
            var options = quickOptions(.plain)
            options.method = method
            if let key { options.fields[.init("Idempotency-Key")!] = key }
            let (result, _) = await upload(.bytes(pattern(3_000)), to: origin.base + "/f", options)
            #expect(result.error?.kind == (isRepeated ? nil : .refused), "\(method) \(key ?? "")")
            #expect(origin.asked.count == (isRepeated ? 2 : 1), "\(method) \(key ?? "")")
        }
    }

    @Test(
        "a complete upload that names no resource is sent again after 502 and 504 if that is safe"
    )
    func optimisticAgain() async throws {
        for status in [502, 504] {
            for (method, isRepeated) in [(HTTPRequest.Method.post, false), (.put, true)] {
                let origin = try UploadOrigin {
                    $0.number == 0 ? .response("\(status) No", ["Upload-Complete: ?0"]) : .serve
                }
                var options = quickOptions(.optimistic)
                options.method = method
                let result = await upload(.bytes(pattern(3_000)), to: origin.base + "/f", options)
                    .result
                #expect(result.error?.kind == (isRepeated ? nil : .refused), "\(status) \(method)")
                #expect(origin.asked.count == (isRepeated ? 2 : 1), "\(status) \(method)")
            }
        }
    }

    @Test("a server may request a pause by a date (RFC 9110 §10.2.3)")
    func laterByDate() async throws {
        let origin = try UploadOrigin { request in
            guard request.number == 0 else { return .serve }
            var moment = time(nil) + 2
            var parts = tm()
            gmtime_r(&moment, &parts)
            var text = [CChar](repeating: 0, count: 64)
            strftime(&text, text.count, "%a, %d %b %Y %H:%M:%S GMT", &parts)
            let date = String(decoding: text.prefix { $0 != 0 }.map { UInt8($0) }, as: UTF8.self)
            return .response("503 Busy", ["Retry-After: \(date)"])
        }
        let (result, events) = await upload(
            .bytes(pattern(9)),
            to: origin.base + "/f",
            quickOptions()
        )
        #expect(try result.get().status == .created)
        let pauses = events.compactMap {
            if case .waiting(let pause, _) = $0 { pause } else { nil }
        }
        #expect(pauses == [.seconds(1)] || pauses == [.seconds(2)])
    }

    @Test("the target's own 4xx is a refusal with its words; a problem document is quoted")
    func refused() async throws {
        let problem = #"{"type":"x","title":"No","detail":"The film is \"bad\"","a":["detail"]}"#
        let origin = try UploadOrigin { request in
            request.method == "PATCH"
                ? .response(
                    "422 Unprocessable Content",
                    ["Upload-Complete: ?1", "Content-Type: application/problem+json"],
                    content: problem
                ) : .serve
        }
        let error = await upload(.bytes(pattern(300_000)), to: origin.base + "/f", quickOptions())
            .result
            .error
        #expect(error?.kind == .refused && error?.token == nil)
        #expect(error?.response?.content == Array(problem.utf8))
        #expect(error?.reason.contains("422") == true)
        #expect(error?.reason.hasSuffix("The film is \"bad\"") == true)
        // Other credentials may work, so the token is kept.
        let login = try UploadOrigin { $0.method == "PATCH" ? .response("401 Who") : .serve }
        let other = await upload(.bytes(pattern(300_000)), to: login.base + "/f", quickOptions())
            .result
            .error
        #expect(other?.kind == .refused && other?.token?.url == login.base + "/u/1")
    }

    @Test("appends are as small as the server requires")
    func appendLimit() async throws {
        let origin = try UploadOrigin(limit: "max-append-size=100000, min-size=0")
        let bytes = pattern(450_000)
        let (result, _) = await upload(.bytes(bytes), to: origin.base + "/f", quickOptions())
        #expect(try result.get().status == .created)
        #expect(origin.taken == [bytes])
        #expect(
            origin.requests.map(\.content.count) == [0, 100_000, 100_000, 100_000, 100_000, 50_000]
        )
    }

    @Test(
        "an offset that the server corrects is accepted; one below the acknowledged offset is not"
    )
    func conflict() async throws {
        let origin = try UploadOrigin { request in
            request.number == 1
                ? .response("409 Conflict", ["Upload-Offset: 0", "Upload-Complete: ?0"]) : .serve
        }
        let (result, _) = await upload(
            .bytes(pattern(300_000)),
            to: origin.base + "/f",
            quickOptions()
        )
        #expect(try result.get().status == .created)

        let forgetful = try UploadOrigin(limit: "max-append-size=100000") { request in
            switch request.number {
            case 3: .cut(after: 1)
            case 4: .response("204 No Content", ["Upload-Offset: 5"])
            default: .serve
            }
        }
        let error = await upload(
            .bytes(pattern(300_000)),
            to: forgetful.base + "/f",
            quickOptions()
        )
        .result.error
        #expect(error?.kind == .gone)
    }

    @Test("an upload resource of another origin is refused, unless allowed")
    func otherOrigin() async throws {
        let other = try UploadOrigin { request in
            request.method == "PATCH" ? .response("201 Created", ["Upload-Complete: ?1"]) : .serve
        }
        _ = await upload(.bytes(pattern(300_000)), to: other.base + "/f", quickOptions())
        let place = other.base + "/u/1"
        let origin = try UploadOrigin { _ in
            .response("201 Created", ["Location: \(place)", "Upload-Offset: 0"])
        }
        var options = quickOptions()
        options.fields[.authorization] = "Bearer secret"
        let asked = other.asked.count
        let error = await upload(.bytes(pattern(300_000)), to: origin.base + "/f", options).result
            .error
        #expect(error?.kind == .otherOrigin && other.asked.count == asked)
        options.allowsOtherOrigin = true
        #expect(
            try await upload(.bytes(pattern(300_000)), to: origin.base + "/f", options).result.get()
                .status == .created
        )
    }

    @Test("a 104 with another version, or of another origin, is ignored")
    func foreignInterim() async throws {
        for fields in [
            "Location: /u/9\r\nUpload-Draft-Interop-Version: 9", "Location: /u/9",
            "Location: http://127.0.0.2/u/9\r\nUpload-Draft-Interop-Version: \(newest)",
        ] {
            let origin = try LoopbackOrigin { connection in
                while var request = try connection.receiveHead() {
                    try connection.send("HTTP/1.1 104 Yes\r\n\(fields)\r\n\r\n")
                    try connection.receiveContent(of: &request)
                    try connection.response("201 Created")
                }
            }
            let (result, events) = await upload(
                .bytes(pattern(300_000)),
                to: origin.base + "/f",
                quickOptions(.optimistic)
            )
            #expect(try result.get().status == .created)
            #expect(!events.contains { if case .resumable = $0 { true } else { false } })
        }
    }

    @Test("an invalid body is reported before anything is sent")
    func invalid() async throws {
        for url in ["ftp://a/b", "nonsense", "http://u:p@127.0.0.1/", "http:///x", "http://a b/"] {
            let error = await upload(.bytes([1]), to: url, quickOptions()).result.error
            #expect(error?.kind == .invalid && error?.reason.contains(url) == true)
        }
        var options = quickOptions()
        options.interopVersion = 2
        #expect(
            await upload(.bytes([1]), to: "http://127.0.0.1/", options).result.error?.kind
                == .invalid
        )
        let error = await upload(.file("/nowhere/at all"), to: "http://127.0.0.1/", quickOptions())
            .result
            .error
        #expect(error?.kind == .unreadable && error?.reason.contains("/nowhere/at all") == true)
    }
}
