// Random requests from a seed, valid and invalid, close to the grammar and to the upload's numbers.
//
// Invariant: as with a web server, content ends properly only at its announced length.

import HTTPTypes
@testable import SpoolgateExchange
import SpoolgateRequests
import SpoolgateTestSupport
import SpoolgateTextFormats
import SpoolgateUploadProtocol

struct FuzzRequests {
    var random: SplitMix
    /// The last locations, for joined uploads.
    private(set) var created: [String] = []

    mutating func remember(_ location: String) { created = created.suffix(3) + [location] }

    struct Subject {
        var location: String
        /// The existing bytes, as far as known.
        var size: Int64
    }

    private static let versions: [String?] = [
        nil, "3", "4", "5", "6", "7", "8", "9", "10", "11", "2", "0", "-1", "5.0", "x",
        "999999999999999", "99999999999999999999",
    ]

    mutating func next(_ subject: Subject) -> ScriptedExchange {
        let method: HTTPRequest.Method = random.one(from: [
            .patch, .patch, .patch, .head, .post, .put, .get, .delete, .options,
        ])
        return make(method, target(subject), subject)
    }

    mutating func creation() -> ScriptedExchange {
        let method: HTTPRequest.Method = random.one(of: .post, .put, .patch)
        let target = random.one(from: [
            "/files", "/files/", "/", "//a", "/files?q=1&token=x", "/f%00/..",
        ])
        return make(method, target, Subject(location: "", size: random.one(of: 0, 5, 12)))
    }

    private mutating func target(_ subject: Subject) -> String {
        if !random.once(in: 6) { return subject.location }
        return random.one(from: [
            subject.location + "/status", subject.location + "?" + subject.location,
            subject.location.uppercased(), subject.location + "x",
            String(subject.location.dropLast()),
            subject.location.replacing("/upload-resource/", with: "/upload-resource/n2/"), "/files",
            "/files/upload-resource/", "/r/", "*",
            "//",
        ])
    }

    private mutating func make(
        _ method: HTTPRequest.Method,
        _ target: String,
        _ subject: Subject
    ) -> ScriptedExchange {
        var (steps, length) = content()
        let fields = fields(subject, length)
        // A joined upload has no content of its own.
        if fields[.uploadConcat]?.hasPrefix("final;") == true, !random.once(in: 4) {
            (steps, length) = ([], .known(0))
        }
        let exchange = ScriptedExchange(
            method,
            target,
            fields,
            steps,
            length: length,
            context: context()
        )
        if random.once(in: 20) { exchange.leave(after: random.one(of: -1, 0, 1, 100)) }
        if random.once(in: 20) { exchange.abandon() }
        return exchange
    }

    // MARK: Fields

    private mutating func fields(_ subject: Subject, _ length: ContentLength) -> HTTPFields {
        if random.once(in: 2) { return tusFields(subject, min(length.count ?? 5, 1 << 40)) }
        // Few others pass the first check.
        if !random.once(in: 3) { return soundFields(subject) }
        var fields = HTTPFields()
        func add(_ name: HTTPField.Name, _ value: String?) {
            if let value { fields.append(HTTPField(name: name, value: value)) }
        }
        add(.uploadDraftInteropVersion, random.one(from: Self.versions))
        add(.uploadComplete, random.one(of: "?1", "?0", "?1", "?0", nil, "?2", "1"))
        if random.once(in: 3) { add(.uploadIncomplete, random.one(of: "?1", "?0", "")) }
        if !random.once(in: 5) { add(.uploadOffset, number(near: subject.size)) }
        if random.once(in: 3) { add(.uploadLength, number(near: subject.size)) }
        if !random.once(in: 5) {
            add(
                .contentType,
                random.one(from: [
                    "application/partial-upload", "text/plain", "multipart/form-data", "",
                ])
            )
        }
        for _ in 0..<random.next() % 3 {
            let name = random.one(from: Self.others)
            add(name, value(near: subject.size))
        }
        // A repeated field usually counts as missing.
        if random.once(in: 12), let again = fields.randomElement(using: &random) {
            fields.append(again)
        }
        return fields
    }

    private mutating func soundFields(_ subject: Subject) -> HTTPFields {
        var fields: HTTPFields = [
            .uploadComplete: random.one(of: "?1", "?0"), .uploadOffset: "\(subject.size)",
            .contentType: "application/partial-upload",
        ]
        if subject.location.isEmpty {
            fields[.uploadOffset] = nil
            fields[.contentType] = random.one(of: nil, "text/plain")
        }
        fields[.uploadDraftInteropVersion] = random.one(of: "5", "6", "7", "8", "10", "10", nil)
        if random.once(in: 4) { fields[.uploadLength] = number(near: subject.size) }
        for _ in 0..<random.next() % 2 {
            fields[random.one(from: Self.others)] = value(near: subject.size)
        }
        return fields
    }

    private static let others = [
        "content-digest", "repr-digest", "want-repr-digest", "want-content-digest",
        "x-http-method-override", "expect", "idempotency-key", "upload-metadata", "prefer",
        "connection", "forwarded", "x-forwarded-for", "host", "range", "content-disposition",
        "content-encoding", "upload-limit", "tus-resumable", "via", "x-request-id",
    ].compactMap { HTTPField.Name($0) }

    private mutating func value(near size: Int64) -> String {
        random.one(from: [
            "sha-256=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:",
            "sha-256=:RBNvo1WzZ4oRRq0W9+hknpT7T8If536DEMBg9hyq/4o=:", "sha-512=1, sha-256=10",
            "sha-256=:A:", "PATCH", "put", "100-continue", "a dGV4dA==,filename ZmlsZQ==,,",
            "attachment; filename*=UTF-8''%e2%82", "\"", "upload-offset, host",
            "for=\"[::1]\";proto=https", "\u{202E}\u{9B}", String(repeating: "a", count: 3_000),
            number(near: size),
        ])
    }

    mutating func number(near size: Int64) -> String {
        random.one(from: [
            "\(size)", "\(size)", "\(size)", "\(size + 1)", "\(max(0, size - 1))", "0", "5", "100",
            "999999999999999", "\(Int64.max)", "-1", "1000000000000000", "", "1.0",
        ])
    }

    // MARK: Content and context

    private mutating func content() -> (ScriptedExchange.Steps, ContentLength) {
        var steps: ScriptedExchange.Steps = []
        var sum: Int64 = 0
        for _ in 0..<random.next() % 4 {
            let count: Int =
                random.once(in: 60)
                ? 200_000 : random.one(of: 1, 1, 2, 3, 5, 7, 12, 40)
            steps.append(.bytes([UInt8](repeating: UInt8(ascii: "a"), count: count)))
            sum += Int64(count)
        }
        switch random.next() % 8 {
        case 0:
            steps.append(.fails(random.one(of: .truncated, .stalled, .released)))
            return (steps, random.one(of: .unknown, .known(sum + 1), .known(.max)))
        case 1, 2, 3: return (steps, .unknown)
        default: return (steps, .known(sum))
        }
    }

    private mutating func context() -> ExchangeContext {
        ExchangeContext(
            owner: random.once(in: 12) ? "alice" : nil,
            origin: random.one(of: nil, "https://example.org", "http://[::1]:65535"),
            interimStatuses: random.one(of: [104], [104], [100, 104], []),
            remoteAddress: random.one(of: nil, "127.0.0.1", "::1", "unix:", "x\"y"),
            scheme: random.one(of: nil, "https"),
            faults: random.one(of: [], [.noOrigin], [.buffered])
        )
    }
}
