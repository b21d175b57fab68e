// Plays every golden transcript with a scripted exchange, a real spool and a scripted upstream.

import Foundation
import HTTPTypes
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@testable import SpoolgateDelivery
@testable import SpoolgateRequests
@testable import SpoolgateSettings
@testable import SpoolgateSpool

@Suite("Golden transcripts")
struct TranscriptTests {
    static var files: [URL] {
        guard let folder = Bundle.module.url(forResource: "Transcripts", withExtension: nil),
            let files = try? FileManager.default.contentsOfDirectory(
                at: folder,
                includingPropertiesForKeys: nil
            )
        else { return [] }
        return files.filter { $0.pathExtension == "http" }
            .sorted { $0.lastPathComponent < $1.lastPathComponent }
    }

    @Test("the transcripts exist")
    func present() {
        #expect(TranscriptTests.files.count >= 20)
    }

    @Test("each transcript produces the recorded responses", arguments: files)
    func plays(file: URL) throws {
        let transcript = try Transcript(String(contentsOf: file, encoding: .utf8))
        let stage = try Stage(transcript)
        for (number, exchange) in transcript.exchanges.enumerated() {
            let place = Comment("\(file.lastPathComponent), request \(number + 1)")
            #expect(try stage.play(exchange) == exchange.expected, place)
            for upload in exchange.uploads {
                #expect(try stage.state(of: upload.id) == upload.state, place)
            }
        }
    }

    @Test("each transcript cites a public source", arguments: files)
    func cites(file: URL) throws {
        let title = try Transcript(String(contentsOf: file, encoding: .utf8)).title
        let source =
            /RFC \d+ §\d|draft-\d\d (§\d|Appendix)|tus-js-client|tus 1\.0|URLSession|http\.client/
        #expect(title.contains(source), "\(file.lastPathComponent): \(title)")
    }
}

private final class Stage {
    /// The transcripts' name for the newest upload.
    private static let fresh = "fresh000000000000000000000"
    /// The age in seconds of uploads before the first request.
    private static let age: Int64 = 100

    private let origin: LoopbackOrigin
    private let response = Monitor<Transcript.UpstreamAnswer?>(nil)
    private let test: GatewayUnderTest
    /// Uploads locked by others.
    private var locked: [Upload] = []
    private var known: Set<UploadID> = []
    private var newest: UploadID?

    init(_ transcript: Transcript) throws {
        let response = response
        origin = try LoopbackOrigin { connection in
            guard try connection.receiveRequest() != nil else { return }
            let told = response.update { $0 } ?? .init(status: 599)
            try connection.response(
                "\(told.status) Said",
                fields: told.fields + ["Connection: close"],
                content: told.content,
                hasContent: told.status != 204
            )
        }
        let limits = transcript.settings["limits"] ?? [:]
        func number(_ key: String) -> Int64? { limits[key].flatMap { Int64($0) } }
        let now = WallTime.now
        let isBlocked = transcript.uploads.contains { $0.state?.phase == .delivering }
        test = try GatewayUnderTest(
            origin.target,
            clock: SystemClock(wall: { now })
        ) { settings, route in
            route.limits = UploadLimits(
                maxSize: number("max-size") ?? 1000,
                minSize: number("min-size") ?? 0,
                maxAppendSize: number("max-append-size"),
                maxAge: number("max-age") ?? 3600
            )
            route.uploadResources = transcript.settings["route"]?["prefix"]
            let words = transcript.settings["route"] ?? [:]
            if words["reply"] == "accepted" { route.reply = .accepted }
            route.tus = words["tus"].flatMap(TusSpeaker.init) ?? .on
            route.tusFinalResponse = words["tus-answer"].flatMap(TusFinalResponse.init) ?? .status
            route.hasRFCClients = words["rfc-clients"] == "true"
            for (version, served) in transcript.settings["aliases"] ?? [:] {
                settings.interopAliases[Int(version) ?? 0] = Int(served)
            }
            // A request waits as long as a delivery may take, and this one never ends.
            guard isBlocked else { return }
            settings.inUseTimeout = .milliseconds(20)
            route.upstream.connectTimeout = .milliseconds(20)
            route.upstream.stallTimeout = .zero
            route.upstream.responseTimeout = .zero
        }
        for line in transcript.uploads { try seed(line, now) }
    }

    // MARK: Setup

    private func seed(_ line: Transcript.SpoolLine, _ now: WallTime) throws {
        let id = try #require(UploadID(line.id))
        let state = try #require(line.state)
        let resources = test.gateway.deliveries.current.routes[RouteSettings.defaultName]?.resources
        var creation = UploadCreation(
            id: id,
            route: RouteSettings.defaultName,
            head: RequestHead(
                method: .post,
                target: "/photos",
                fields: Self.creation(of: state)
            ),
            created: WallTime(seconds: 1_795_000_000)
        )
        creation.resourcePath = try #require(resources).path(of: id, creationPath: "/photos")
        let upload = try test.spool.create(creation, length: state.length, requestRelease: {})
        known.insert(id)
        let content = (0..<state.offset).map { UInt8(ascii: "a") + UInt8($0 % 26) }
        if !content.isEmpty { try upload.append(content.span.bytes) }
        try upload.sync()
        try bring(upload, to: state)
        try upload.sync()
        if state.phase == .delivering { locked.append(upload) } else { upload.unlock() }
        try test.setActivity(of: line.id, to: now.seconds - Self.age)
    }

    /// The fields of its creation: incomplete, in every version.
    private static func creation(of state: UploadState) -> HTTPFields {
        guard state.kind.family == .tus else {
            return [.uploadComplete: "?0", .uploadDraftInteropVersion: "6"]
        }
        var fields: HTTPFields = [.tusResumable: "1.0.0", .uploadMetadata: "filename YQ=="]
        if state.kind.isPart { fields[.uploadConcat] = "partial" }
        return fields
    }

    private func bring(_ upload: Upload, to state: UploadState) throws {
        let next: Upload.Waiting = state.isAccepted ? .queue(.now) : .client(.now)
        switch state.phase {
        case .receiving: return
        case .deferred: try upload.postpone(reason: nil, next)
        case .delivering:
            try upload.postpone(reason: nil, next)
            try upload.beginAttempt()
        case .delivered:
            try upload.beginAttempt()
            try upload.finish(with: Self.stored(state.finalStatus ?? 201))
        case .indeterminate:
            try upload.beginAttempt()
            try upload.hold(.indeterminate, reason: "no answer")
        case .failed:
            try upload.postpone(reason: nil, .client(.now))
            try upload.hold(
                .failed,
                reason: "overtime",
                response: state.finalStatus.map(Self.stored)
            )
        case .held:
            try upload.postpone(reason: nil, .client(.now))
            try upload.hold(.held, reason: "by an operator")
        }
    }

    private static func stored(_ status: Int) -> StoredResponse {
        let fields: HTTPFields = [.contentType: "text/plain"]
        let head = ResponseHead(status: .init(code: status), fields: fields)
        return StoredResponse(head: head, content: Array("stored".utf8))
    }

    // MARK: A request

    func play(_ exchange: Transcript.Exchange) throws -> [String] {
        response.update { $0 = exchange.upstream }
        let before = origin.requests.count
        let head = exchange.request
        let record = test.serve(
            ScriptedExchange(
                head.method,
                renamed(head.target, Self.fresh, newest?.description),
                head.fields,
                exchange.content.isEmpty ? [] : [.bytes(exchange.content)],
                length: head.contentLength
            )
        )
        let all = try test.summaries()
        if let made = all.first(where: { !known.contains($0.id) }) {
            newest = made.id
            known.insert(made.id)
        }
        var seen = origin.requests.dropFirst(before).map { request in
            let words = request.line.split(separator: " ")
            let content = String(decoding: request.content, as: UTF8.self)
            return "^> " + (words.prefix(2) + [Substring(content)]).joined(separator: " ")
        }
        for interim in record.interims { seen += lines(interim, []) }
        if let final = record.head { seen += lines(final, record.content) }
        if record.isAborted { seen.append("= break off") }
        return seen.map { line in
            renamed(line.trimmingCharacters(in: .whitespaces), newest?.description, Self.fresh)
        }
    }

    /// An upload's state as in a `spool:` line; nil if missing.
    func state(of name: String) throws -> UploadState? {
        let id = name == Self.fresh ? newest : UploadID(name)
        return try test.summaries().first { $0.id == id }.map { summary in
            UploadState(
                offset: summary.offset,
                length: summary.length,
                phase: summary.state.phase,
                isAccepted: summary.nextAttempt != nil
                    && [.deferred, .delivering].contains(summary.state.phase),
                kind: summary.state.kind
            )
        }
    }

    private func renamed(_ text: String, _ old: String?, _ new: String?) -> String {
        guard let old, let new else { return text }
        return text.replacingOccurrences(of: old, with: new)
    }

    private func lines(_ head: ResponseHead, _ content: [UInt8]) -> [String] {
        var fields = head.fields
        var lines: [String] = []
        if fields[.contentType] == "application/problem+json", !content.isEmpty {
            fields[.contentType] = nil
            lines.append("problem: \(problem(content))")
        } else if !content.isEmpty {
            let text = String(decoding: content, as: UTF8.self)
            lines.append("content: \(text.trimmingCharacters(in: .newlines))")
        }
        lines += fields.map { field in
            let isDate = field.name == .uploadExpires
            return "\(field.name.rawName): \(isDate ? relative(field.value) : field.value)"
        }
        return (["\(head.status.code)"] + lines.sorted()).map { "< \($0)" }
    }

    /// A date in seconds from now, such as `+3600`.
    private func relative(_ date: String) -> String {
        let reader = DateFormatter()
        reader.locale = Locale(identifier: "en_US_POSIX")
        reader.dateFormat = "EEE, dd MMM yyyy HH:mm:ss 'GMT'"
        reader.timeZone = TimeZone(secondsFromGMT: 0)
        guard let moment = reader.date(from: date) else { return "no date: \(date)" }
        return "+\(Int64(moment.timeIntervalSince1970) - test.gateway.clock.now.seconds)"
    }

    private func problem(_ content: [UInt8]) -> String {
        guard
            let document = try? JSONSerialization.jsonObject(with: Data(content)) as? [String: Any]
        else { return "not JSON" }
        let prefix = "https://iana.org/assignments/http-problem-types#"
        let type = (document["type"] as? String)?.replacingOccurrences(of: prefix, with: "")
        let members = document.keys.sorted().filter {
            !["type", "title", "status", "detail", "code"].contains($0)
        }
        let told = members.map { "\($0)=\(document[$0] ?? "")" }
        return ([type ?? "about:blank"] + told).joined(separator: " ")
    }
}
