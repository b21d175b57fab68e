// The integrity fields of RFC 9530 and their base64.

import Foundation
import HTTPTypes
import SpoolgateTestSupport
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import Testing

@Suite("Integrity fields")
struct DigestFieldTests {
    // RFC 9530 appendix B.1 and D: {"hello": "world"} with a newline.
    private static let sha256 = "RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg="
    private static let sha512 =
        "YMAam51Jz/jOATT6/zvHrLVgOYTGFy1d6GJiOHTohq4yP+pgk4vf2aCs"
        + "yRZOtw8MjkM7iw7yZ/WkppmM44T3qg=="

    private func read(_ lines: String...) throws -> DigestValues {
        var fields = HTTPFields()
        for line in lines { fields.append(HTTPField(name: .reprDigest, value: line)) }
        return try DigestValues(.reprDigest, in: fields)
    }

    @Test("known digests are read and written again, unknown ones ignored")
    func roundTrip() throws {
        let both = "sha-256=:\(Self.sha256):, sha-512=:\(Self.sha512):"
        let digests = try read(both)
        #expect(digests.algorithms == [.sha256, .sha512])
        #expect(digests.fieldValue == both)
        #expect(digests == (try read("sha-512=:\(Self.sha512):", "sha-256=:\(Self.sha256):")))
        #expect(
            try read("xxh64=:AAAA:, sha=:AAAA:, md5=1, sha-256=:\(Self.sha256):;a=b").algorithms
                == [.sha256]
        )
        #expect(try read().isEmpty)
        #expect(try read("").isEmpty)
        #expect(try read("sha=:AAAA:").isEmpty)
        #expect(DigestValues().fieldValue == "")
    }

    @Test(
        "a known digest with an invalid value is refused with a reason",
        arguments: [
            ("sha-256=:AAAA:", "a sha-256 digest has 32 bytes, not 3"),
            ("sha-512=:\(sha256):", "a sha-512 digest has 64 bytes, not 32"),
            ("sha-256=::", "a sha-256 digest has 32 bytes, not 0"),
            ("sha-256=abc", "sha-256 is not followed by =:base64:"),
            ("sha-256", "sha-256 is not followed by =:base64:"),
            ("sha-256=(:AAAA:)", "sha-256 is not followed by =:base64:"),
            ("sha-256=44af", "it is not a list of algorithm=:base64:"),
            ("sha-256:=\(sha256)", "it is not a list of algorithm=:base64:"),
            ("SHA-256=:\(sha256):", "it is not a list of algorithm=:base64:"),
            ("sha-256=:AA", "it is not a list of algorithm=:base64:"),
            ("=", "it is not a list of algorithm=:base64:"),
        ]
    )
    func refused(value: String, reason: String) throws {
        #expect(throws: Refusal.invalidDigest(.reprDigest, reason)) { try read(value) }
        let refusal = Refusal.invalidDigest(.reprDigest, reason)
        #expect(refusal.status == .badRequest && refusal.completeness == .incomplete)
    }

    @Test("digests agree if each given one is the computed one")
    func agreement() throws {
        let told = try read("sha-256=:\(Self.sha256):")
        let computed = try read("sha-256=:\(Self.sha256):, sha-512=:\(Self.sha512):")
        #expect(told.agrees(with: computed))
        #expect(!computed.agrees(with: told))
        #expect(DigestValues().agrees(with: told))
        var other = DigestValues()
        other[.sha256] = [UInt8](repeating: 0, count: 32)
        #expect(!told.agrees(with: other))
        #expect(!told.agrees(with: DigestValues()))
    }

    @Test(
        "a client gets the known algorithm that it prefers",
        arguments: [
            ("sha-256=1", .sha256), ("sha-512=3, sha-256=10, unixsum=0", .sha256),
            ("sha-512=5, sha-256=5", .sha256), ("sha-256=0, sha-512=1", .sha512),
            ("sha-256=0", nil), ("sha-256=11", nil), ("sha-256=-1", nil), ("sha-256", nil),
            ("sha-256=1.0", nil), ("md5=10", nil), ("", nil), ("=", nil),
        ] as [(String, DigestAlgorithm?)]
    )
    func wanted(value: String, algorithm: DigestAlgorithm?) {
        #expect(DigestAlgorithm.wanted(in: [.wantReprDigest: value]) == algorithm)
        #expect(DigestAlgorithm.wanted(in: [:]) == nil)
    }

    @Test(
        "base64 agrees with RFC 4648 section 10",
        arguments: [
            ("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="), ("foobar", "Zm9vYmFy"),
        ]
    )
    func base64(plain: String, text: String) {
        #expect(Base64.encode(Array(plain.utf8)) == text)
        #expect(Base64.decode(text) == Array(plain.utf8))
        #expect(Base64.decode(text.replacing("=", with: "")) == Array(plain.utf8))
    }

    @Test("base64 of any bytes reads back, and invalid encodings are refused")
    func base64Edges() {
        var random = SplitMix(seed: 1)
        for count in 0..<100 {
            let bytes = (0..<count).map { _ in UInt8.random(in: 0...255, using: &random) }
            #expect(Base64.encode(bytes) == Data(bytes).base64EncodedString())
            #expect(Base64.decode(Base64.encode(bytes)) == bytes)
        }
        for text in [
            "A", "A===", "Zh==", "Zm9=", "Zm 9v", "Zm9v\n", "=", "====", "Z=g=", "_-__", "é",
        ] {
            #expect(Base64.decode(text) == nil, "\(text)")
        }
        #expect(Hexadecimal.text([0, 0x0f, 0xa0, 0xff]) == "000fa0ff")
    }
}
