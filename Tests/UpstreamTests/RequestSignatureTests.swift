// The examples of the Amazon S3 API Reference, "Signature Calculations for the Authorization Header".

import Foundation
import HTTPTypes
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateUpstream

@Suite("The signature of a request to a bucket")
struct RequestSignatureTests {
    private static let host = "examplebucket.s3.amazonaws.com"

    private func signature(token: String? = nil) throws -> RequestSignature {
        let text =
            "AKIAIOSFODNN7EXAMPLE\nwJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY\n" + (token ?? "")
        return RequestSignature(
            key: try AccessKey(text: text),
            region: "us-east-1",
            // 2013-05-24T00:00:00Z
            time: WallTime(seconds: 1_369_353_600)
        )
    }

    @Test(
        "the reference's examples have the reference's signatures",
        arguments: [
            (
                "GET", "/test.txt", [("range", "bytes=0-9")], SignedContent.none,
                "host;range;x-amz-content-sha256;x-amz-date",
                "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
            ),
            (
                "PUT", "/test%24file.text",
                [
                    ("Date", "Fri, 24 May 2013 00:00:00 GMT"),
                    ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
                ],
                .digest(digest(of: "Welcome to Amazon S3.")),
                "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
                "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"
            ),
            (
                "GET", "/?lifecycle=", [], .none, "host;x-amz-content-sha256;x-amz-date",
                "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
            ),
            (
                "GET", "/?max-keys=2&prefix=J", [], .none, "host;x-amz-content-sha256;x-amz-date",
                "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
            ),
        ] as [(String, String, [(String, String)], SignedContent, String, String)]
    )
    func examples(
        method: String,
        target: String,
        fields: [(String, String)],
        content: SignedContent,
        names: String,
        signature: String
    ) throws {
        var given = HTTPFields()
        for (name, value) in fields { given[.made(name)] = value }
        let method = try #require(HTTPRequest.Method(method))
        var request = UpstreamRequest(method: method, target: target, fields: given)
        try self.signature().sign(&request, host: Self.host, content)
        let signed = request.fields
        #expect(
            signed[.authorization]
                == "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/"
                + "aws4_request,SignedHeaders=\(names),Signature=\(signature)"
        )
        #expect(signed[.host] == Self.host)
        #expect(signed[.amzDate] == "20130524T000000Z")
        #expect(signed[.amzContentSHA256] == content.text)
        for (name, value) in fields { #expect(signed[.made(name)] == value) }
    }

    @Test("a name sorts before its extensions, and a token is signed")
    func order() throws {
        let fields: HTTPFields = [.made("x-amz-meta-a-b"): "1", .made("x-amz-meta-a"): "2"]
        var request = UpstreamRequest(method: .put, target: "/b/k", fields: fields)
        try signature(token: "tok").sign(&request, host: "h", .unsigned)
        let signed = request.fields
        let text = try #require(signed[.authorization])
        #expect(
            text.contains(
                "SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-meta-a;x-amz-meta-a-b;"
                    + "x-amz-security-token,"
            )
        )
        #expect(signed[.amzContentSHA256] == "UNSIGNED-PAYLOAD")
        #expect(signed[.amzSecurityToken] == "tok")
    }

    private static func digest(of text: String) -> [UInt8] {
        // `try?`: reading from memory cannot fail.
        (try? UpstreamContent.bytes(Array(text.utf8)).digest {}) ?? []
    }
}

@Suite("The file of an access key")
struct AccessKeyTests {
    @Test(
        "both forms are read",
        arguments: [
            ("ID\nSECRET/+=\n", nil), ("ID\r\nSECRET/+=\r\n", nil), ("# a\n\n ID \nSECRET/+=", nil),
            ("ID\nSECRET/+=\nTOKEN\n", "TOKEN"),
            ("[default]\naws_access_key_id = ID\naws_secret_access_key=SECRET/+=\n", nil),
            (
                "[other]\naws_access_key_id=X\naws_secret_access_key=Y\n[default]\nregion = r\n"
                    + "aws_secret_access_key = SECRET/+=\naws_access_key_id = ID\n"
                    + "aws_session_token = TOKEN\n[third]\naws_access_key_id=Z\n",
                "TOKEN"
            ),
        ] as [(String, String?)]
    )
    func right(text: String, token: String?) throws {
        let key = try AccessKey(text: text)
        #expect(key.id == "ID")
        #expect(key.secret == "SECRET/+=")
        #expect(key.token == token)
    }

    @Test(
        "an invalid file gives the reason, without a byte of its content",
        arguments: [
            ("", "has 0 lines"), ("SECRET\n", "has 1 line;"), ("a\nb\nc\nd\n", "has 4 lines"),
            ("a b\nSECRET\n", "other characters"), ("a/b\nSECRET\n", "other characters"),
            ("a\nSECRÉT\n", "other characters"),
            ("[other]\naws_access_key_id=a\n", "no section [default]"),
            ("[default]\naws_access_key_id=a\n", "lacks aws_access_key_id or"),
            (
                "[default]\naws_secret_access_key=SECRET\naws_access_key_id=\n",
                "lacks aws_access_key_id or"
            ),
            (
                "[default]\naws_access_key_id=a\n[other]\naws_secret_access_key=SECRET\n",
                "lacks aws_access_key_id or"
            ),
        ]
    )
    func wrong(text: String, words: String) {
        let fault = #expect(throws: AccessKeyFault.self) { try AccessKey(text: text) }
        #expect(fault?.reason.contains(words) == true, "\(fault?.reason ?? "")")
        #expect(fault?.reason.contains("SECR") == false)
    }

    @Test("the variables of the AWS tools are a key, and empty ones are ignored")
    func environment() throws {
        var variables = ["AWS_ACCESS_KEY_ID": "ID", "AWS_SECRET_ACCESS_KEY": "SECRET"]
        let key = try AccessKey { variables[$0] }
        #expect(key.id == "ID" && key.secret == "SECRET" && key.token == nil)
        variables["AWS_SESSION_TOKEN"] = ""
        #expect(try AccessKey { variables[$0] }.token == nil)
        variables["AWS_SESSION_TOKEN"] = "TOKEN"
        #expect(try AccessKey { variables[$0] }.token == "TOKEN")
        variables["AWS_SECRET_ACCESS_KEY"] = "SECR ET"
        let spaced = #expect(throws: AccessKeyFault.self) { try AccessKey { variables[$0] } }
        #expect(spaced?.reason.contains("SECR") == false)
        variables["AWS_SECRET_ACCESS_KEY"] = ""
        let fault = #expect(throws: AccessKeyFault.self) { try AccessKey { variables[$0] } }
        #expect(fault?.reason.hasPrefix("AWS_SECRET_ACCESS_KEY is not set; ") == true)
    }

    @Test("a file that others can read is refused, and so is a missing one")
    func file() throws {
        let directory = try ScratchDirectory()
        let path = directory.file("key")
        var settings = BucketSettings()
        #expect(settings.accessKeyFault?.reason == "s3.credentials is not set")
        settings.credentials = .file(path)
        #expect(settings.accessKeyFault?.reason.contains("No such file") == true)
        try Bucket.writeKey(to: path)
        #expect(settings.accessKeyFault == nil)
        #expect(chmod(path, 0o644) == 0)
        #expect(settings.accessKeyFault?.reason.contains("set its mode to 0600 or 0640") == true)
        #expect(settings.accessKeyFault?.reason.contains(path) == true)
    }
}
