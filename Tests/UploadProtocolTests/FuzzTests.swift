// Random bytes, from a seed, in the protocol's fields: nothing traps, and what must be ignored is ignored.

import HTTPTypes
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@Suite("Random fields")
struct FuzzTests {
    private static let limits = UploadLimits(maxSize: .max, maxAge: 60)
    private static let names: [HTTPField.Name] = [
        .uploadOffset, .uploadLength, .uploadComplete, .uploadIncomplete,
        .uploadDraftInteropVersion, .uploadLimit,
    ]
    /// Pieces close to the grammar, so that parsing gets past the first byte.
    private static let pieces = [
        "?1", "?0", "0", "7", "-", "999999999999999", ".", ";", "a", "=", "\"", "\\", ":", ",",
        "@", "%\"", "%f", "(", ")", " ", "\t", "*", "?", "é", "1.5", "3", "6", "10",
    ]

    private static func value(_ random: inout SplitMix) -> [UInt8] {
        if Bool.random(using: &random) {
            return (0..<Int.random(in: 0..<24, using: &random)).map { _ in
                UInt8.random(in: .min ... .max, using: &random)
            }
        }
        return (0..<Int.random(in: 0..<6, using: &random)).flatMap { _ in
            Array((pieces.randomElement(using: &random) ?? "").utf8)
        }
    }

    @Test("any bytes in any field give a response", arguments: UInt64(0)..<8)
    func anyBytes(seed: UInt64) {
        var random = SplitMix(seed: seed)
        let methods: [HTTPRequest.Method] = [.post, .put, .patch, .head, .get, .delete, .options]
        let id = UploadID(high: random.next(), low: random.next())
        let targets = [
            "/a", "/a/upload-resource/\(id)", "/upload-resource/n2/\(id)", "/upload-resource/", "*",
            "",
        ]
        for _ in 0..<1500 {
            var fields = HTTPFields()
            for _ in 0..<Int.random(in: 0..<6, using: &random) {
                let name = FuzzTests.names.randomElement(using: &random) ?? .uploadOffset
                fields.append(HTTPField(name: name, lenientValue: FuzzTests.value(&random)))
            }
            let head = RequestHead(
                method: methods.randomElement(using: &random) ?? .post,
                target: targets.randomElement(using: &random) ?? "/",
                fields: fields,
                contentLength: [.unknown, .known(0), .known(5), .known(.max)]
                    .randomElement(using: &random) ?? .unknown
            )
            let resources = UploadResources()
            let family = ProtocolFamily(
                of: head,
                isOnResource: resources.match(head.path) != .none
            )
            let dialect = family == .tus ? Dialect.tus : Dialect(of: fields)
            let request = UploadRequest(
                head,
                dialect: dialect,
                resources: resources,
                limits: FuzzTests.limits
            )
            let builder: any ResponseWording =
                family == .tus
                ? TusResponseBuilder(head, limits: FuzzTests.limits, reportsResponse: false, now: 0)
                : ResponseBuilder(dialect: dialect, limits: FuzzTests.limits)
            switch request {
            case .append(_, let append):
                #expect(append.offset >= 0 && append.length ?? 0 >= 0)
                let phases: [UploadState.Phase] = [
                    .receiving, .deferred, .delivered, .failed, .held,
                ]
                for phase in phases {
                    for offset in [0, append.offset] {
                        let state = UploadState(
                            offset: offset,
                            length: offset,
                            phase: phase,
                            kind: UploadKind(of: head)
                        )
                        _ = state.decide(append, dialect: dialect, limits: FuzzTests.limits)
                        _ = state.decideAtEnd(append.completeness, dialect: dialect)
                    }
                }
            case .creation(let creation):
                #expect(creation.length ?? 0 >= 0)
                _ = UploadState.decide(creation, limits: FuzzTests.limits)
            case .refused(let refusal):
                let response = builder.refused(refusal, offset: nil)
                #expect((400..<600).contains(response.head.status.code))
            case .concatenation(let urls):
                #expect(!urls.isEmpty)
            case .offsetRetrieval, .cancellation, .options, .resourceOptions, .status, .elsewhere,
                .ordinaryUpload, .passedUpload, .passThrough:
                break
            }
            _ = UpstreamFields.delivered(fields)
            _ = UpstreamFields.passedThrough(fields)
            _ = UpstreamFields.relayed(fields)
        }
    }

    /// Spellings that are neither an Integer nor a Boolean.
    static let malformed = [
        "", "five", "5.0", "+5", "5 5", "5,", "-1", "1e3", "0x10", "1234567890123456", "\"5\"",
        ":NQ==:", "@5", "5;", "5;A=1", "(5)", "?2", "true", "yes", "? 1", "?1,", "\u{660}", "％",
    ]

    @Test("a malformed field changes nothing", arguments: malformed, 3...Version.newest + 1)
    func malformedIsAbsent(value: String, version: Int64) {
        let id = UploadID(high: 3, low: 4)
        let marker: HTTPField.Name = version == 3 ? .uploadIncomplete : .uploadComplete
        let sound: HTTPFields = [
            .uploadDraftInteropVersion: String(version), .uploadOffset: "5", marker: "?1",
            .contentType: "application/partial-upload",
        ]
        for target in ["/a", "/a/upload-resource/\(id)"] {
            for method in [HTTPRequest.Method.post, .patch, .head, .delete] {
                for name in [HTTPField.Name.uploadOffset, .uploadLength, marker] {
                    var absent = sound
                    absent[name] = nil
                    var present = absent
                    present.append(HTTPField(name: name, value: value))
                    #expect(
                        classify(method, target, present) == classify(method, target, absent),
                        "\(method) \(target) \(name)"
                    )
                }
            }
        }
    }

    @Test("a malformed version counts as none", arguments: malformed)
    func malformedVersion(value: String) {
        #expect(Dialect(of: [.uploadDraftInteropVersion: value]) == .newest)
    }

    private func classify(_ method: HTTPRequest.Method, _ target: String, _ fields: HTTPFields)
        -> UploadRequest
    {
        UploadRequest(
            RequestHead(
                method: method,
                target: target,
                fields: fields,
                contentLength: .known(100)
            ),
            dialect: Dialect(of: fields),
            resources: UploadResources(),
            limits: FuzzTests.limits
        )
    }
}
