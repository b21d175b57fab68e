// The requests that test the gate: methods, method overrides, and protocol fields.
//
// Whether each is an upload is written by hand. A test fails until every field in the sources and every method in
// swift-http-types has an entry here.

import HTTPTypes
@testable import SpoolgateExchange
import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol

struct GateRequest: Sendable, CustomStringConvertible {
    var method: HTTPRequest.Method
    var fields: HTTPFields
    var isUpload: Bool
    /// Whether it has no method override, or the most common one.
    var isPlain = false

    var description: String { "\(method) \(fields.map { "\($0.name): \($0.value)" })" }

    static let all: [GateRequest] = methods.flatMap { method, isUpload in
        overrides.flatMap { override, makesUpload in
            protocols.map { fields in
                var all = override
                all.append(contentsOf: fields)
                return GateRequest(
                    method: method,
                    fields: all,
                    isUpload: isUpload || makesUpload,
                    isPlain: override.isEmpty || override[.methodOverride] == "PATCH"
                )
            }
        }
    }

    // MARK: Methods

    /// The methods, and whether each alone makes an upload.
    ///
    /// Others pass within `max-size`, unless a field, which the upstream may obey, makes them an upload.
    static let methods: [(HTTPRequest.Method, isUpload: Bool)] = [
        (.post, true), (.put, true), (.patch, true),
        // Case-sensitive by RFC 9110 §9.1, but not in every application.
        (method("post"), true), (method("Put"), true), (method("pATCH"), true),
        (.get, false), (.head, false), (.delete, false), (.options, false), (.trace, false),
        (.connect, false), (method("QUERY"), false), (method("PROPFIND"), false),
        (method("PROPPATCH"), false), (method("MKCOL"), false), (method("COPY"), false),
        (method("MOVE"), false), (method("LOCK"), false), (method("UNLOCK"), false),
        (method("REPORT"), false), (method("SEARCH"), false), (method("PURGE"), false),
        (method("POSTS"), false), (method("X"), false),
    ]

    private static func method(_ text: String) -> HTTPRequest.Method {
        guard let method = HTTPRequest.Method(text) else { preconditionFailure("\(text)") }
        return method
    }

    /// Method overrides, and whether each makes any request an upload.
    static let overrides: [(HTTPFields, makesUpload: Bool)] = [
        ([:], false),
        (["X-HTTP-Method-Override": "PATCH"], true), (["X-HTTP-Method-Override": "put"], true),
        (["X-HTTP-Method": "POST"], true), (["X-Method-Override": "PUT"], true),
        (["X-HTTP-Method-Override": "GET, PUT"], true),
        (["X-HTTP-Method-Override": "GET"], false), (["X-HTTP-Method-Override": ""], false),
        (["X-HTTP-Method-Override": "DELETE"], false),
    ].map { (HTTPFields(pairs: $0.0), $0.1) }

    // MARK: Fields

    /// None, each protocol's, both, and malformed ones.
    static let protocols: [HTTPFields] = [
        [:],
        ["Upload-Draft-Interop-Version": "10", "Upload-Complete": "?1"],
        ["Upload-Draft-Interop-Version": "6", "Upload-Complete": "?0"],
        ["Upload-Draft-Interop-Version": "3", "Upload-Incomplete": "?0"],
        ["Upload-Complete": "?1"],
        [
            "Upload-Draft-Interop-Version": "10", "Upload-Complete": "?1", "Upload-Offset": "0",
            "Content-Type": "application/partial-upload",
        ],
        ["Tus-Resumable": "1.0.0"],
        ["Tus-Resumable": "1.0.0", "Upload-Defer-Length": "1"],
        [
            "Tus-Resumable": "1.0.0", "Upload-Length": "LENGTH",
            "Content-Type": "application/offset+octet-stream",
        ],
        [
            "Tus-Resumable": "1.0.0", "Upload-Offset": "0",
            "Content-Type": "application/offset+octet-stream",
        ],
        ["Tus-Resumable": "1.0.0", "Upload-Concat": "final;/a /b"],
        ["Tus-Resumable": "1.0.0", "Upload-Concat": "partial", "Upload-Length": "LENGTH"],
        [
            "Tus-Resumable": "1.0.0", "Upload-Draft-Interop-Version": "10",
            "Upload-Complete": "?1",
        ],
        ["Tus-Resumable": "0.2.2"], ["Tus-Resumable": ""],
        ["Tus-Version": "1.0.0", "Tus-Extension": "creation"],
        ["Content-Type": "application/offset+octet-stream"],
        ["Content-Type": "application/partial-upload"],
        ["Upload-Complete": "yes"], ["Upload-Length": "-1", "Upload-Offset": "x"],
        ["Upload-Draft-Interop-Version": "99", "Upload-Complete": "?1"],
        ["Upload-Incomplete": "?0", "Upload-Draft-Interop-Version": "x"],
        ["Content-Digest": "sha-256=:AAAA:", "Upload-Complete": "?1"],
        ["Repr-Digest": "sha-256=:AAAA:"], ["Want-Repr-Digest": "sha-256=1"],
        ["Tus-Resumable": "1.0.0", "Upload-Checksum": "sha1 AAAA", "Upload-Length": "LENGTH"],
        ["Upload-Metadata": "filename d29ybGQ=", "Upload-Expires": "0", "Upload-Limit": "x"],
        ["Expect": "100-continue"], ["Transfer-Encoding": "chunked"], ["Content-Length": "0"],
        ["Incremental": "?1"], ["Incremental": "?1", "Upload-Complete": "?1"],
        ["Upgrade": "websocket", "Connection": "upgrade"], ["Content-Range": "bytes 0-1/2"],
        ["Idempotency-Key": "1"], ["Prefer": "respond-async"], ["Spoolgate-Owner": "forged"],
        ["Destination": "https://a.test/x"], ["Via": "1.1 spoolgate-other"],
        ["Origin": "https://a.test", "Access-Control-Request-Method": "PUT"],
    ].map { HTTPFields(pairs: $0) }

    /// Fields that no request here needs: of responses, or set by the gateway.
    static let withoutPart: Set<String> = [
        "link", "accept-patch", "host", "tus-max-size", "tus-checksum-algorithm",
        "content-location",
    ]

    /// `trace` is called at the content's first read.
    func exchange(
        on target: String,
        _ content: Int,
        saysLength: Bool,
        isCut: Bool = false,
        owner: String?,
        trace: @escaping @Sendable () -> Void
    ) -> ScriptedExchange {
        var fields = fields
        for (index, field) in fields.enumerated() where field.value == "LENGTH" {
            fields[fields.index(fields.startIndex, offsetBy: index)].value = "\(content)"
        }
        let bytes = [UInt8](repeating: 7, count: content)
        let half = ScriptedExchange.Step.bytes(Array(bytes.prefix(content / 2)))
        return ScriptedExchange(
            method,
            target,
            fields,
            [.happens(trace)] + (isCut ? [half, .fails(.truncated)] : [.bytes(bytes)]),
            length: saysLength ? .known(Int64(content)) : .unknown,
            context: ExchangeContext(
                owner: owner.map { ExactText($0) },
                interimStatuses: [104],
                remoteAddress: "192.0.2.1"
            )
        )
    }
}

extension HTTPFields {
    fileprivate init(pairs: KeyValuePairs<String, String>) {
        self.init()
        for (name, value) in pairs { append(HTTPField(name: .made(name), value: value)) }
    }

    fileprivate init(pairs: [String: String]) {
        self.init()
        for (name, value) in pairs.sorted(by: { $0.key < $1.key }) {
            append(HTTPField(name: .made(name), value: value))
        }
    }
}
