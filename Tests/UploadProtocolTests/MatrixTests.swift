// The emission matrix: every dialect with every operation.
//
// The expectations come from each version's draft, not from Dialect.swift.

import HTTPTypes
@testable import SpoolgateUploadProtocol
import Testing

struct Version: Sendable, CustomTestStringConvertible {
    let number: Int64?
    let echo: String?
    var testDescription: String { number.map { "version \($0)" } ?? "no version" }

    static let newest: Int64 = 10

    static let all: [Version] =
        (3...newest).map { Version(number: $0, echo: String($0)) }
        + [Version(number: nil, echo: nil)]
        + [2, newest + 1, 0, -3, 999_999_999_999_999].map { Version(number: $0, echo: nil) }

    /// The version whose semantics apply.
    var semantics: Int64 { echo == nil ? Self.newest : number ?? Self.newest }
    var completenessName: String { semantics == 3 ? "Upload-Incomplete" : "Upload-Complete" }
    func completeness(_ complete: Bool) -> String {
        (complete != (semantics == 3)) ? "?1" : "?0"
    }
    var hasLimits: Bool { semantics >= 6 }
    var limit: String {
        let key = semantics == 6 ? "expires" : "max-age"
        return "max-size=1000, min-size=10, max-append-size=500, \(key)=3600"
    }
    var fields: HTTPFields {
        number.map { [.uploadDraftInteropVersion: String($0)] } ?? [:]
    }
    var dialect: Dialect { Dialect(of: fields) }
    func marker(_ complete: Bool) -> HTTPFields {
        var fields = fields
        let name: HTTPField.Name = semantics == 3 ? .uploadIncomplete : .uploadComplete
        fields.append(HTTPField(name: name, value: completeness(complete)))
        return fields
    }
}

@Suite("Every dialect with every operation")
struct MatrixTests {
    static let limits = UploadLimits(
        maxSize: 1000,
        minSize: 10,
        maxAppendSize: 500,
        maxAge: 3600
    )
    static let id = UploadID(high: 1, low: 2)
    static let resource = "/a/upload-resource/\(id)"

    private func classify(
        _ method: HTTPRequest.Method,
        _ target: String,
        _ fields: HTTPFields,
        _ length: ContentLength = .known(100)
    ) -> UploadRequest {
        UploadRequest(
            RequestHead(method: method, target: target, fields: fields, contentLength: length),
            dialect: Dialect(of: fields),
            resources: UploadResources(),
            limits: MatrixTests.limits
        )
    }

    private func response(_ version: Version) -> ResponseBuilder {
        ResponseBuilder(dialect: version.dialect, limits: MatrixTests.limits)
    }

    private func lines(_ head: ResponseHead) -> [String] {
        head.fields.map { "\($0.name): \($0.value)" }.sorted()
    }

    /// The fields that `version` must send, sorted.
    private func expected(
        _ version: Version,
        complete: Bool? = nil,
        offset: Int64? = nil,
        limits: Bool = false,
        _ others: String...
    ) -> [String] {
        var lines = others
        if let echo = version.echo { lines.append("Upload-Draft-Interop-Version: \(echo)") }
        if let complete {
            lines.append("\(version.completenessName): \(version.completeness(complete))")
        }
        if let offset { lines.append("Upload-Offset: \(offset)") }
        if limits, version.hasLimits { lines.append("Upload-Limit: \(version.limit)") }
        return lines.sorted()
    }

    @Test("104 only if the version is known, progress from version 5 on", arguments: Version.all)
    func interim(version: Version) {
        #expect(version.dialect.allowsInterim == (version.echo != nil))
        #expect(version.dialect.allowsProgress == (version.echo != nil && version.semantics >= 5))
        guard version.echo != nil else { return }
        let created = response(version).interimCreated(location: "/x")
        #expect(created.status.code == 104)
        #expect(lines(created) == expected(version, limits: true, "Location: /x"))
        let progress = response(version).interimProgress(offset: 7)
        #expect(progress.status.code == 104)
        #expect(lines(progress) == expected(version, offset: 7))
    }

    @Test("a client of the RFC names no version, and receives the newest dialect's 104")
    func rfcClients() {
        func dialect(_ fields: HTTPFields) -> Dialect {
            Dialect(of: fields, aliases: [30: 9], hasRFCClients: true)
        }
        #expect(dialect([:]) == .rfc)
        #expect(Dialect.rfc.interopVersion == nil)
        #expect(Dialect.rfc.allowsInterim && Dialect.rfc.allowsProgress)
        #expect(Dialect.rfc.allowsInterim(toCreationOf: .unknown))
        #expect(!Dialect.rfc.allowsInterim(toCreationOf: .known(0)))
        for version in ["2", "99", "?1", "", "6, 6"] {
            #expect(dialect([.uploadDraftInteropVersion: version]) == .newest, "\(version)")
        }
        #expect(dialect([.uploadDraftInteropVersion: "6"]).interopVersion == 6)
        #expect(dialect([.uploadDraftInteropVersion: "30"]).interopVersion == 30)
        let responses = ResponseBuilder(dialect: .rfc, limits: UploadLimits(maxSize: 9, maxAge: 60))
        #expect(
            lines(responses.interimCreated(location: "/x"))
                == ["Location: /x", "Upload-Limit: max-size=9, min-size=0, max-age=60"]
        )
        #expect(lines(responses.interimProgress(offset: 7)) == ["Upload-Offset: 7"])
    }

    @Test("creations are read in each dialect", arguments: Version.all, [true, false])
    func creation(version: Version, complete: Bool) {
        let request = classify(.post, "/a", version.marker(complete))
        let creation = UploadRequest.Creation(
            completeness: complete ? .complete : .incomplete,
            length: complete ? 100 : nil
        )
        #expect(request == .creation(creation))
        var sized = version.marker(false)
        sized.append(HTTPField(name: .uploadLength, value: "200"))
        #expect(
            classify(.put, "/a", sized)
                == .creation(.init(completeness: .incomplete, length: 200))
        )
    }

    @Test("the other completeness field has no effect", arguments: Version.all)
    func otherMarker(version: Version) {
        var fields = version.fields
        let name: HTTPField.Name = version.semantics == 3 ? .uploadComplete : .uploadIncomplete
        fields.append(HTTPField(name: name, value: "?1"))
        #expect(classify(.post, "/a", fields) == .ordinaryUpload(isMarked: false))
    }

    @Test(
        "an empty creation of length 0 is complete in versions 5 and 6 only",
        arguments: Version.all
    )
    func emptyFile(version: Version) {
        var fields = version.marker(false)
        fields.append(HTTPField(name: .uploadLength, value: "0"))
        let whole = version.echo != nil && [5, 6].contains(version.semantics)
        #expect(
            classify(.post, "/a", fields, .known(0))
                == .creation(.init(completeness: whole ? .complete : .incomplete, length: 0))
        )
    }

    @Test("a partial creation is 201 with all fields", arguments: Version.all)
    func created(version: Version) {
        let made = response(version).created(location: "/x", offset: 4)
        #expect(made.head.status == .created && made.content.isEmpty)
        let link = "Link: </x/status>; rel=\"status\""
        #expect(
            lines(made.head)
                == expected(version, complete: false, offset: 4, limits: true, "Location: /x", link)
        )
    }

    @Test("a partial append is 201 up to version 6, then 204", arguments: Version.all)
    func appended(version: Version) {
        let made = response(version).appended(offset: 4)
        #expect(made.head.status.code == (version.semantics <= 6 ? 201 : 204))
        #expect(
            lines(made.head)
                == expected(version, complete: false, offset: 4, "Cache-Control: no-store")
        )
    }

    @Test(
        "the final response is the target's; versions 3 to 6 locate the upload",
        arguments: Version.all,
        [nil, "/made"]
    )
    func final(version: Version, location: String?) {
        var upstream = ResponseHead(status: .init(code: 418), fields: [.server: "s"])
        if let location { upstream.fields[.location] = location }
        let head = response(version).final(upstream, isSuccess: true, offset: 9, location: "/x")
            .head
        #expect(head.status.code == 418)
        var wanted = expected(version, complete: true, offset: 9, "Server: s")
        if let location = location ?? (version.semantics <= 6 ? "/x" : nil) {
            wanted.append("Location: \(location)")
        }
        #expect(lines(head) == wanted.sorted())
        #expect(
            response(version).final(upstream, isSuccess: true, offset: 9, location: nil).head
                .fields[.location]
                == location
        )
    }

    @Test(
        "HEAD is 204, complete only when delivered",
        arguments: Version.all,
        [UploadState.Phase.receiving, .deferred, .delivered]
    )
    func retrieval(version: Version, phase: UploadState.Phase) {
        #expect(
            classify(.head, MatrixTests.resource, version.fields)
                == .offsetRetrieval(MatrixTests.id)
        )
        #expect(
            classify(.get, MatrixTests.resource, version.fields) == .offsetRetrieval(MatrixTests.id)
        )
        let state = UploadState(offset: 9, length: 9, phase: phase)
        let decision = state.decideRetrieval(.newest)
        guard case .report(let completeness) = decision else {
            return #expect(decision == .report(.complete))
        }
        let made = response(version).offsetReported(
            state,
            completeness,
            remainingAge: 3600,
            response: nil
        )
        #expect(made.head.status == .noContent && made.content.isEmpty)
        var wanted = expected(
            version,
            complete: phase == .delivered,
            offset: 9,
            limits: true,
            "Cache-Control: no-store"
        )
        if version.hasLimits { wanted.append("Upload-Length: 9") }
        #expect(lines(made.head) == wanted.sorted())
        let unknown = response(version).offsetReported(
            UploadState(offset: 1),
            .incomplete,
            remainingAge: 5,
            response: nil
        )
        #expect(!unknown.head.fields.contains(.uploadLength))
        #expect(
            unknown.head.fields[.uploadLimit]
                == (version.hasLimits ? version.limit.replacing("3600", with: "5") : nil)
        )
    }

    @Test(
        "upload fields on HEAD and DELETE are 400 up to version 6",
        arguments: Version.all,
        [HTTPRequest.Method.head, .delete]
    )
    func stray(version: Version, method: HTTPRequest.Method) {
        var offset = version.fields
        offset.append(HTTPField(name: .uploadOffset, value: "5"))
        for fields in [offset, version.marker(true)] {
            switch classify(method, MatrixTests.resource, fields) {
            case .refused(let refusal):
                #expect(version.semantics <= 6 && refusal.status == .badRequest)
            case .offsetRetrieval, .cancellation:
                #expect(version.semantics >= 7)
            default:
                Issue.record("neither refused nor accepted")
            }
        }
    }

    @Test("a missing completeness has each version's meaning", arguments: Version.all)
    func omitted(version: Version) {
        var fields = version.fields
        fields.append(HTTPField(name: .uploadOffset, value: "5"))
        fields.append(HTTPField(name: .contentType, value: "application/partial-upload"))
        let request = classify(.patch, MatrixTests.resource, fields)
        switch version.semantics {
        case 3, 4, 5, 6:
            let append = UploadRequest.Append(
                offset: 5,
                completeness: version.semantics == 3
                    ? .complete : version.semantics == 4 ? .incomplete : .atLength,
                contentLength: .known(100)
            )
            #expect(request == .append(MatrixTests.id, append))
        default:
            #expect(request == .refused(.missingCompleteness))
        }
    }

    @Test("an append's content type is required from version 6 on", arguments: Version.all)
    func mediaType(version: Version) {
        var fields = version.marker(true)
        fields.append(HTTPField(name: .uploadOffset, value: "5"))
        let append = UploadRequest.Append(
            offset: 5,
            completeness: .complete,
            contentLength: .known(100)
        )
        for type in [nil, "video/mp4", "application/partial-uploads"] {
            fields[.contentType] = type
            #expect(
                classify(.patch, MatrixTests.resource, fields)
                    == (version.semantics >= 6
                        ? .refused(.wrongMediaType) : .append(MatrixTests.id, append))
            )
        }
        fields[.contentType] = "application/partial-upload"
        #expect(classify(.patch, MatrixTests.resource, fields) == .append(MatrixTests.id, append))
        fields[.uploadOffset] = nil
        #expect(classify(.patch, MatrixTests.resource, fields) == .refused(.missingOffset))
    }

    @Test("a mismatch is 409 with the correct offset, incomplete", arguments: Version.all)
    func mismatch(version: Version) {
        let append = UploadRequest.Append(
            offset: 3,
            completeness: .complete,
            contentLength: .known(1)
        )
        for phase in [UploadState.Phase.receiving, .deferred, .delivering, .delivered] {
            let refusal = Refusal.offsetMismatch(expected: 5, provided: 3)
            #expect(
                UploadState(offset: 5, phase: phase)
                    .decide(append, dialect: version.dialect, limits: MatrixTests.limits)
                    == .refuse(refusal)
            )
            let made = response(version).refused(refusal, offset: 5)
            #expect(made.head.status == .conflict)
            #expect(
                lines(made.head)
                    == expected(
                        version,
                        complete: false,
                        offset: 5,
                        "Cache-Control: no-store",
                        "Content-Type: application/problem+json"
                    )
            )
        }
    }

    @Test("a refusal for a limit reports the limits from version 6 on", arguments: Version.all)
    func limitTold(version: Version) {
        let made = response(version).refused(.tooLarge(maxSize: 1000), offset: nil)
        #expect(made.head.status.code == 413)
        #expect(
            lines(made.head)
                == expected(
                    version,
                    complete: false,
                    limits: true,
                    "Cache-Control: no-store",
                    "Content-Type: application/problem+json"
                )
        )
    }

    @Test("DELETE is 204, and OPTIONS reports limits and patch type", arguments: Version.all)
    func others(version: Version) {
        #expect(
            classify(.delete, MatrixTests.resource, version.fields) == .cancellation(MatrixTests.id)
        )
        let cancelled = response(version).cancelled()
        #expect(cancelled.head.status == .noContent)
        #expect(lines(cancelled.head) == expected(version, "Cache-Control: no-store"))
        #expect(classify(.options, "/a", version.fields) == .options)
        #expect(
            classify(.options, MatrixTests.resource, version.fields)
                == .resourceOptions(MatrixTests.id)
        )
        let options = response(version).options(ResponseHead(status: .notImplemented))
        #expect(options.status == .ok)
        #expect(
            lines(options) == [
                "Accept-Patch: application/partial-upload", "Upload-Limit: \(version.limit)",
            ]
        )
    }

    @Test("content beyond a known length ends the upload from version 7 on", arguments: Version.all)
    func excess(version: Version) {
        #expect(version.dialect.deactivatesOnExcess == (version.semantics >= 7))
    }
}
