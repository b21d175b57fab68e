// Random tus requests, valid and invalid.

import HTTPTypes
import SpoolgateExchange
import SpoolgateTestSupport
import SpoolgateUploadProtocol

extension FuzzRequests {
    /// The fields of a tus request with `count` bytes of content; without a location, of a creation.
    mutating func tusFields(_ subject: Subject, _ count: Int64) -> HTTPFields {
        let isCreation = subject.location.isEmpty || random.once(in: 10)
        var fields = HTTPFields()
        fields[.tusResumable] = random.once(in: 12) ? random.one(of: nil, "", "0.2.2") : "1.0.0"
        if count > 0 || !isCreation || random.once(in: 4) {
            fields[.contentType] =
                random.once(in: 12)
                ? random.one(of: nil, "text/plain", "application/partial-upload")
                : "application/offset+octet-stream"
        }
        if isCreation {
            addCreation(to: &fields, count)
        } else {
            fields[.uploadOffset] =
                random.once(in: 6) ? number(near: subject.size) : "\(subject.size)"
            if random.once(in: 4) { fields[.uploadLength] = length(near: subject.size + count) }
        }
        if random.once(in: 4) { fields[.uploadChecksum] = checksum(count) }
        if random.once(in: 6) {
            fields[.methodOverride] = random.one(from: [
                "PATCH", "HEAD", "DELETE", "patch", "GET", "POST", "CONNECT", "",
            ])
        }
        if random.once(in: 6) {
            fields[.prefer] = random.one(from: [
                "return=representation", "return=minimal, return=representation;x", ", ,;=", "",
            ])
        }
        if random.once(in: 12) { fields[.uploadComplete] = random.one(of: "?1", "?0", "1") }
        if random.once(in: 12), let again = fields.randomElement(using: &random) {
            fields.append(again)
        }
        return fields
    }

    private mutating func addCreation(to fields: inout HTTPFields, _ count: Int64) {
        switch random.next() % 8 {
        case 0...1: break
        case 2...4: fields[.uploadConcat] = "partial"
        case 5...6:
            fields[.uploadConcat] = final()
            if !random.once(in: 6) { return }
        default:
            fields[.uploadConcat] = random.one(
                of: "",
                "partial;",
                "final",
                "final;",
                "final; ",
                "x"
            )
        }
        if !random.once(in: 4) { fields[.uploadLength] = length(near: count) }
        if fields[.uploadLength] == nil || random.once(in: 12) {
            fields[.uploadDeferLength] = random.one(of: "1", "1", "1", "0", "2", "", nil)
        }
        if random.once(in: 2) {
            fields[.uploadMetadata] = random.one(from: [
                "filename ZmlsZQ==,filetype dGV4dC9wbGFpbg==", "", "filename", "a ,b", ",", "a b c",
                "filename 4pS=", "filename =", "filetype IA0K,filename Li4vLi4=", "k dg==,k dg==",
                "\u{E9} dg==", "name " + String(repeating: "QUFB", count: 700),
            ])
        }
    }

    private mutating func final() -> String {
        var urls = created.shuffled(using: &random).prefix(1 + Int(random.next() % 4)).map {
            random.one(of: "", "", "", "https://example.org", "https://example.orgx") + $0
        }
        if urls.isEmpty || random.once(in: 6) {
            urls.append(
                random.one(from: [
                    "/files/upload-resource/", "http://evil.example/files/x", "//", "?", "..",
                    "/files/upload-resource/aaaaaaaaaaaaaaaaaaaaaaaaaa", "https://example.org",
                    urls.first ?? "",
                ])
            )
        }
        return "final;" + urls.joined(separator: random.one(of: " ", " ", "  ", "\t"))
    }

    /// Mostly `size`, otherwise close to it.
    private mutating func length(near size: Int64) -> String {
        random.once(in: 3) ? number(near: size) : "\(size)"
    }

    /// The SHA-1 of `count` letters a, or an invalid one.
    private mutating func checksum(_ count: Int64) -> String {
        let right: [Int64: String] = [
            1: "hvfkN/qlp/zhXR3cuerq6jd2Z7g=", 2: "4MkDWJjdUvxlxBRUzsnE0mEb+zc=",
            3: "fiQN50+x7Qj6CNOAY/amqRRiqBU=", 5: "31HjfCaaqU04+T5Te/biAgshQGw=",
            7: "6TtOPEZP/VFzL71t7XF+nv2iiq0=", 12: "OE/NFgqzszF06iea0mBS7uGRUIo=",
            40: "pWVZQY3HkIzl8LJLBceOBVy4Y9w=",
        ]
        if let digest = right[count], !random.once(in: 3) { return "sha1 " + digest }
        return random.one(from: [
            "sha1 AAAAAAAAAAAAAAAAAAAAAAAAAAA=", "sha1", "sha1 ", "sha1 AA==", "md5 AAAA",
            "crc32 AA==",
            "sha256 AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", "sha1 !", "", "SHA1 AA==",
            "sha1 a b",
        ])
    }
}
