// Digests and keyed digests, tested with published vectors, and key files.

import Foundation
import SpoolgateCrypto
import SpoolgatePosix
import SpoolgateTestSupport
import Testing

@Suite("Digests")
struct CryptoTests {
    private func hex(_ bytes: [UInt8]) -> String {
        bytes.map { String(format: "%02x", $0) }.joined()
    }

    private func bytes(_ hex: String) -> [UInt8] {
        var rest = hex[...]
        var bytes: [UInt8] = []
        while let byte = UInt8(rest.prefix(2), radix: 16) {
            bytes.append(byte)
            rest = rest.dropFirst(2)
        }
        return bytes
    }

    @Test(
        "a digest of parts is the digest of the whole (FIPS 180-4's examples)",
        arguments: [
            (.sha256, "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (.sha256, "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            (
                .sha512, "abc",
                "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
                    + "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f"
            ),
            (
                .sha512,
                "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
                    + "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
                "8e959b75dae313da8cf4f72814fc143f8f7779c6eb9f7fa17299aeadb6889018"
                    + "501d289e4900f7e4331b99dec4b5433ac7d329eeb6dd26545e96e55b874be909"
            ),
        ] as [(DigestFunction, String, String)]
    )
    func running(function: DigestFunction, text: String, digest: String) {
        let all = Array(text.utf8)
        for size in [1, 7, 1000] {
            let running = RunningDigest(function)
            for start in stride(from: 0, to: all.count, by: size) {
                let part = Array(all[start..<min(start + size, all.count)])
                running.update(part.span.bytes)
            }
            #expect(hex(running.finish()) == digest)
        }
    }

    @Test("a million bytes in parts (FIPS 180-4's long example)")
    func million() {
        let running = RunningDigest(.sha256)
        let part = [UInt8](repeating: UInt8(ascii: "a"), count: 1000)
        for _ in 0..<1000 { part.withUnsafeBytes { running.update($0) } }
        #expect(
            hex(running.finish())
                == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"
        )
    }

    @Test(
        "HMAC-SHA256 agrees with RFC 4231's cases",
        arguments: [
            (
                String(repeating: "0b", count: 20), "4869205468657265",
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
            ),
            (
                "4a656665", "7768617420646f2079612077616e7420666f72206e6f7468696e673f",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
            ),
            (
                String(repeating: "aa", count: 20), String(repeating: "dd", count: 50),
                "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"
            ),
            (
                String(repeating: "aa", count: 131),
                "54657374205573696e67204c6172676572205468616e20426c6f636b2d53697a"
                    + "65204b6579202d2048617368204b6579204669727374",
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
            ),
        ]
    )
    func keyed(key: String, text: String, code: String) {
        #expect(hex(HMAC256.code(bytes(text), key: bytes(key))) == code)
    }
}

@Suite("Secret files")
struct SecretFileTests {
    @Test(
        "a file that others can read or its group can change is not secret",
        arguments: [
            (0o600, true), (0o400, true), (0o640, true), (0o644, false), (0o604, false),
            (0o602, false), (0o620, false), (0o660, false),
        ]
    )
    func permissions(mode: Int, isTaken: Bool) throws {
        let path = "\(NSTemporaryDirectory())/secret-\(UUID().uuidString)"
        defer { try? FileManager.default.removeItem(atPath: path) }
        try Data([1, 2, 0, 0xff]).write(to: URL(filePath: path))
        try FileManager.default.setAttributes([.posixPermissions: mode], ofItemAtPath: path)
        if isTaken {
            #expect(try SecretFile.read(path, limit: 4) == [1, 2, 0, 0xff])
            #expect(throws: SystemError(call: "read", subject: path, errno: EFBIG)) {
                try SecretFile.read(path, limit: 3)
            }
        } else {
            #expect(throws: SystemError(call: "stat", subject: path, errno: EACCES)) {
                try SecretFile.read(path, limit: 4)
            }
        }
    }

    @Test("a path that is not a regular file is not secret, and opening it does not block")
    func noFile() throws {
        let pipe = "\(NSTemporaryDirectory())/pipe-\(UUID().uuidString)"
        try #require(mkfifo(pipe, 0o600) == 0)
        defer { unlink(pipe) }
        #expect(throws: SystemError.self) { try SecretFile.read(pipe, limit: 4) }
        #expect(throws: SystemError.self) { try SecretFile.read("/", limit: 4) }
        #expect(throws: SystemError(call: "open", subject: "/no/file", errno: ENOENT)) {
            try SecretFile.read("/no/file", limit: 4)
        }
    }
}
