// Plays every golden transcript against the protocol core.
//
// The model below does what the gateway does between two calls of the core, with uploads that are
// numbers instead of files. It is not the gateway: no disk, no threads, no upstream.

import Foundation
import HTTPTypes
import TestSupport
import Testing
import TextFormats
import UploadProtocol
import Upstream

@Suite("golden transcripts")
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

    @Test("the transcripts are there")
    func present() {
        #expect(TranscriptTests.files.count >= 20)
    }

    @Test("each transcript plays as written", arguments: files)
    func plays(file: URL) throws {
        let transcript = try Transcript(String(contentsOf: file, encoding: .utf8))
        var model = try Model(transcript)
        for (number, exchange) in transcript.exchanges.enumerated() {
            let where_ = Comment("\(file.lastPathComponent), request \(number + 1)")
            let outcome = model.answer(exchange)
            #expect(outcome.decision == exchange.decision, where_)
            #expect(outcome.responses == exchange.responses.map(sorted), where_)
            for upload in exchange.uploads {
                #expect(model.uploads[upload.id] == upload.state, where_)
            }
        }
    }

    private func sorted(_ response: Transcript.ExpectedResponse) -> Transcript.ExpectedResponse {
        var response = response
        response.fields.sort()
        return response
    }
}

/// What the gateway does around the core, for one route.
private struct Model {
    struct Outcome {
        var responses: [Transcript.ExpectedResponse] = []
        var decision: String?
    }

    static let newID = "fresh000000000000000000000"
    var uploads: [String: UploadState] = [:]
    let limits: UploadLimits
    let resources: UploadResources
    let aliases: [Int: Int]

    init(_ transcript: Transcript) throws {
        for upload in transcript.uploads { uploads[upload.id] = upload.state }
        let told = transcript.settings["limits"] ?? [:]
        func number(_ key: String) -> Int64? { told[key].flatMap { Int64($0) } }
        limits = UploadLimits(
            maxSize: number("max-size") ?? 1000,
            minSize: number("min-size") ?? 0,
            maxAppendSize: number("max-append-size"),
            minAppendSize: number("min-append-size") ?? 0,
            maxAge: number("max-age") ?? 3600
        )
        resources = UploadResources(prefix: transcript.settings["route"]?["prefix"])
        aliases = (transcript.settings["aliases"] ?? [:]).reduce(into: [:]) { aliases, told in
            if let version = Int(told.key) { aliases[version] = Int(told.value) }
        }
    }

    mutating func answer(_ exchange: Transcript.Exchange) -> Outcome {
        let head = exchange.request
        let dialect = Dialect(of: head.fields, aliases: aliases)
        var response = ResponseBuilder(dialect: dialect, limits: limits)
        response.isSegmented = true
        let request = UploadRequest(head, dialect: dialect, resources: resources, limits: limits)
        switch request {
        case .creation(let creation):
            response.isSegmented = UploadRequest.isSegmented(head, dialect)
            return create(creation, head, exchange, response)
        case .offsetRetrieval(let id):
            return retrieve(id, response).map { Outcome(responses: [seen($0)]) }
                ?? Outcome(decision: "break off")
        case .append(let id, let append):
            return self.append(append, to: id, exchange, response)
        case .cancellation(let id):
            guard let state = uploads[id.description] else {
                return Outcome(responses: [seen(response.refused(.unknownUpload, offset: nil))])
            }
            if let refusal = state.cancellationRefusal {
                return Outcome(responses: [seen(response.refused(refusal, offset: nil))])
            }
            uploads[id.description] = nil
            return Outcome(responses: [seen(response.cancelled())])
        case .options:
            guard let upstream = exchange.upstream else { return Outcome(decision: "options") }
            return Outcome(responses: [seen(Response(response.options(upstream)))])
        case .resourceOptions:
            return Outcome(responses: [seen(response.resourceOptions())])
        case .status: return Outcome(decision: "status")
        case .ordinaryUpload:
            return Outcome(decision: "ordinary upload")
        case .passThrough:
            return Outcome(decision: "pass through")
        case .refused(let refusal):
            return Outcome(responses: [seen(response.refused(refusal, offset: nil))])
        }
    }

    private func retrieve(_ id: UploadID, _ response: ResponseBuilder) -> Response? {
        guard let state = uploads[id.description] else {
            return response.refused(.unknownUpload, offset: nil)
        }
        switch state.phase {
        case .delivering:
            // The others' connection is broken off.
            guard response.dialect.takesOffsetForSuccess else { return nil }
            return response.refused(.finalResponsePending, offset: nil)
        case .indeterminate: return response.refused(.outcomeUnknownGone, offset: nil)
        case .failed: return response.refused(.deliveryFailedGone, offset: nil)
        case .receiving, .deferred, .delivered, .held:
            return response.offsetTold(state, remainingAge: limits.maxAge - 100)
        }
    }

    private mutating func create(
        _ creation: UploadRequest.Creation,
        _ head: RequestHead,
        _ exchange: Transcript.Exchange,
        _ response: ResponseBuilder
    ) -> Outcome {
        guard let id = UploadID(Model.newID) else { return Outcome(decision: "bad id") }
        let location = resources.path(of: id, creationPath: head.path)
        uploads[id.description] = UploadState(offset: 0)
        var outcome = Outcome()
        if response.dialect.allowsInterim(toCreationOf: head.contentLength) {
            outcome.responses.append(
                seen(Response(response.interimCreated(location: location)))
            )
        }
        let rest = receive(
            UploadState.decide(creation, limits: limits),
            creation.completeness,
            into: id,
            exchange,
            response,
            location: location
        )
        outcome.responses += rest.responses
        outcome.decision = rest.decision
        return outcome
    }

    private mutating func append(
        _ append: UploadRequest.Append,
        to id: UploadID,
        _ exchange: Transcript.Exchange,
        _ response: ResponseBuilder
    ) -> Outcome {
        guard let state = uploads[id.description] else {
            return Outcome(responses: [seen(response.refused(.unknownUpload, offset: nil))])
        }
        return receive(
            state.decide(append, dialect: response.dialect, limits: limits),
            append.completeness,
            into: id,
            exchange,
            response,
            location: nil
        )
    }

    private mutating func receive(
        _ decision: UploadState.AppendDecision,
        _ completeness: Completeness,
        into id: UploadID,
        _ exchange: Transcript.Exchange,
        _ response: ResponseBuilder,
        location: String?
    ) -> Outcome {
        let before = uploads[id.description] ?? UploadState(offset: 0)
        switch decision {
        case .refuse(let refusal):
            return Outcome(responses: [seen(response.refused(refusal, offset: before.offset))])
        case .breakOff:
            return Outcome(decision: "break off")
        case .deliver:
            return deliver(before.offset, id, exchange, response, location: location)
        case .replay:
            return Outcome(decision: "replay")
        case .receive(let ceiling, let ceilingIsLength, let length):
            var state = before
            state.length = length
            state.offset += Int64(exchange.content.count)
            if state.offset > ceiling {
                let refusal = UploadState.refusalAtCeiling(
                    ceiling,
                    ceilingIsLength: ceilingIsLength,
                    limits: limits
                )
                let dies = ceilingIsLength && response.dialect.deactivatesOnExcess
                state.offset = ceiling
                uploads[id.description] = dies ? nil : state
                return Outcome(responses: [
                    seen(response.refused(refusal, offset: dies ? nil : ceiling))
                ])
            }
            uploads[id.description] = state
            switch state.decideAtEnd(completeness, dialect: response.dialect) {
            case .complete(let length):
                return deliver(length, id, exchange, response, location: location)
            case .partial:
                let partial =
                    location.map { response.created(location: $0, offset: state.offset) }
                    ?? response.appended(offset: state.offset)
                return Outcome(responses: [seen(partial)])
            case .replay:
                return Outcome(decision: "replay")
            case .refuse(let refusal):
                return Outcome(responses: [seen(response.refused(refusal, offset: state.offset))])
            case .breakOff:
                return Outcome(decision: "break off")
            }
        }
    }

    private mutating func deliver(
        _ length: Int64,
        _ id: UploadID,
        _ exchange: Transcript.Exchange,
        _ response: ResponseBuilder,
        location: String?
    ) -> Outcome {
        uploads[id.description] = UploadState(offset: length, length: length, phase: .delivered)
        guard let upstream = exchange.upstream else {
            return Outcome(decision: "deliver length=\(length)")
        }
        let cleaned = ResponseHead(
            status: upstream.status,
            fields: UpstreamFields.relayed(upstream.fields)
        )
        let final = response.final(cleaned, offset: length, location: location)
        return Outcome(responses: [seen(Response(final))])
    }

    /// A response in the form of a transcript, fields sorted.
    private func seen(_ response: Response) -> Transcript.ExpectedResponse {
        var expected = Transcript.ExpectedResponse(status: response.head.status.code)
        var fields = response.head.fields
        if !response.content.isEmpty {
            expected.problem = problem(response.content)
            if fields[.contentType] == "application/problem+json" { fields[.contentType] = nil }
        }
        expected.fields = fields.map { "\($0.name.rawName): \($0.value)" }.sorted()
        return expected
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
