// The operator's rules for request fields to the upstream.

import HTTPTypes
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@Suite("Field policy")
struct FieldPolicyTests {
    private func names(_ texts: String...) -> [HTTPField.Name] { texts.compactMap { .init($0) } }

    private func fields(_ lines: KeyValuePairs<String, String>) -> HTTPFields {
        HTTPFields(
            lines.compactMap { line in
                HTTPField.Name(line.key).map { HTTPField(name: $0, value: line.value) }
            }
        )
    }

    private func lines(_ fields: HTTPFields) -> [String] {
        fields.map { "\($0.name): \($0.value)" }
    }

    private var creation: HTTPFields {
        fields([
            "Host": "a", "Accept": "*/*", "Content-Type": "text/plain", "Authorization": "old",
            "Cookie": "a=b", "X-Api-Key": "k", "Repr-Digest": "x=1", "X-Debug": "1",
            "Upload-Complete": "?1",
        ])
    }

    private let completing: HTTPFields = [
        .authorization: "new", .contentType: "application/partial-upload",
    ]

    @Test("without rules every field passes that the protocol allows")
    func noRules() {
        #expect(
            lines(UpstreamFields.delivered(creation, completing: completing))
                == lines(creation).dropLast()
        )
    }

    @Test("a list of forwarded fields keeps host, content and credentials; strip wins")
    func forward() {
        var policy = FieldPolicy()
        policy.forward = names("ACCEPT", "x-absent")
        #expect(
            lines(UpstreamFields.delivered(creation, policy: policy)) == [
                "Host: a", "Accept: */*", "Content-Type: text/plain", "Authorization: old",
                "Cookie: a=b", "Repr-Digest: x=1",
            ]
        )
        policy.strip = names("accept", "Cookie", "Host")
        #expect(
            lines(UpstreamFields.delivered(creation, policy: policy)) == [
                "Content-Type: text/plain", "Authorization: old", "Repr-Digest: x=1",
            ]
        )
        policy.forward = []
        // What the authorizer sets is not the client's.
        let kept = UpstreamFields.delivered(
            [.accept: "a", .cookie: "b"],
            granted: [.accept],
            policy: policy
        )
        #expect(kept == [.accept: "a"])
        policy.strip = []
        #expect(UpstreamFields.delivered(creation, policy: policy).count == 5)
    }

    @Test("credentials come from the creation, the completing request or neither")
    func credentials() {
        var policy = FieldPolicy()
        policy.credentialFields += names("x-api-key")
        func sent(_ completing: HTTPFields?) -> [String] {
            UpstreamFields.delivered(creation, completing: completing, policy: policy)
                .filter { policy.credentialFields.contains($0.name) }.map(\.value)
        }
        #expect(sent(completing) == ["old", "a=b", "k"])
        #expect(UpstreamFields.recorded(creation, policy: policy) == creation)
        policy.credentials = .completing
        #expect(sent(completing) == ["new"])
        #expect(sent(nil) == [])
        let recorded = UpstreamFields.recorded(creation, policy: policy)
        #expect(recorded.count == creation.count - 3)
        #expect(!lines(recorded).contains { $0.contains("old") || $0.contains("a=b") })
        policy.credentials = .none
        #expect(sent(completing) == [])
        #expect(UpstreamFields.recorded(creation, policy: policy) == recorded)
        // A request other than an upload keeps its credentials.
        #expect(!UpstreamFields.passedThrough(creation, policy: policy).contains(.authorization))
        policy.credentials = .completing
        #expect(UpstreamFields.passedThrough(creation, policy: policy)[.authorization] == "old")
    }

    @Test("a field set by the operator occurs once, with the operator's value")
    func set() {
        var policy = FieldPolicy()
        policy.set = [HTTPField(name: .accept, value: "a"), HTTPField(name: .cookie, value: "c")]
        var fields = creation
        fields.append(HTTPField(name: .accept, value: "second"))
        UpstreamFields.finish(&fields, policy: policy)
        #expect(lines(fields).filter { $0.hasPrefix("Accept") } == ["Accept: a"])
        #expect(fields[.cookie] == "c")
        policy.strip = names("x-debug")
        policy.forward = []
        let passed = UpstreamFields.passedThrough(creation, policy: policy)
        #expect(passed[.accept] == "*/*" && passed.count == creation.count - 2)
    }

    @Test("names of connections, framing and upload protocols are not the operator's")
    func reserved() {
        for name in [
            "Connection", "content-length", "Transfer-Encoding", "TE", "Trailer", "Upgrade",
            "Expect",
            "Proxy-Authorization", "Keep-Alive", "Upload-Complete", "upload-anything",
            "Tus-Resumable", "X-HTTP-Method-Override", "", "a b", "é",
        ] {
            #expect(FieldPolicy.name(name) == nil, "\(name)")
        }
        for name in ["Host", "Authorization", "X-Upload", "Accept"] {
            #expect(FieldPolicy.name(name) != nil, "\(name)")
        }
    }

    @Test("file data in Upload-Metadata is forwarded if no field has it")
    func metadata() {
        let metadata =
            "filename w7wudHh0,filetype dGV4dC9wbGFpbg==,album eCB5w6Q=,"
            + "Real-Ip MQ==,cookie Yw==,bad:key eA=="
        let creation = RequestHead(
            method: .post,
            target: "/a",
            fields: [.uploadMetadata: metadata]
        )
        func told(_ fields: HTTPFields, prefix: String?) -> HTTPFields {
            var policy = FieldPolicy()
            policy.metadataPrefix = prefix
            var fields = fields
            UpstreamFields.addMetadata(of: creation, to: &fields, policy: policy)
            return fields
        }
        let bare = told([.contentType: "application/octet-stream"], prefix: nil)
        #expect(
            lines(bare).sorted() == [
                "Content-Disposition: attachment; filename*=UTF-8''%C3%BC.txt",
                "Content-Type: text/plain",
            ]
        )
        let own: HTTPFields = [.contentType: "image/png", .contentDisposition: "inline"]
        #expect(told(own, prefix: nil) == own)
        let prefixed = told(own, prefix: "X-Meta-")
        #expect(prefixed[HTTPField.Name.made("X-Meta-album")] == "x%20y%C3%A4")
        #expect(prefixed.count == 5, "\(lines(prefixed))")
        // None of these is a field that only a proxy may send.
        #expect(!told(own, prefix: "X-").contains(HTTPField.Name.made("X-Real-Ip")))
    }
}
