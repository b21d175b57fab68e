// File names, media types and descriptions from clients, and their written forms.

import Foundation
import HTTPTypes
import SpoolgateDelivery
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateTestSupport
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@Suite("file names and forms")
struct FileNameTests {
    private func name(_ target: String, _ disposition: String?) -> ClientFileName {
        var fields = HTTPFields()
        fields[.contentDisposition] = disposition
        return ClientFileName(target: target, fields: fields)
    }

    @Test(
        "a client's name becomes harmless in a directory",
        arguments: [
            ("/a/report.pdf", nil, "report.pdf"), ("/a/b%2Fc.txt", nil, "c.txt"),
            ("/a/..", nil, "_."), ("/a/%2e%2e%2fetc", nil, "etc"), ("/", nil, "upload"),
            ("/a/?x=/y", nil, "upload"), ("/a/x%00y", nil, "x_y"), ("/a/%", nil, "_"),
            ("/a/%4", nil, "_4"), ("/a/%zz", nil, "_zz"), ("/.hidden", nil, "_hidden"),
            ("/r.json", nil, "r.json_"), ("/r.JSON", nil, "r.JSON_"), ("*", nil, "_"),
            ("/caf\u{e9}", nil, "caf__"), ("/a\\b", nil, "b"), ("/-rf", nil, "_rf"),
            ("/x", "attachment; filename=\"the file.tar.gz\"", "the_file.tar.gz"),
            ("/x", "form-data; name=f; FileName=plain.txt", "plain.txt"),
            ("/x", "attachment; filename=\"../../etc/passwd\"", "passwd"),
            ("/x", "attachment; filename=\"C:\\\\temp\\\\a.doc\"", "a.doc"),
            ("/x", "attachment; filename=\"a\\\"b.txt\"", "a_b.txt"),
            ("/x", "attachment; filename=\"unclosed", "x"),
            ("/x", "attachment; filename=\"\"", "x"), ("/x", "attachment", "x"),
            ("/x", "attachment; filename*=UTF-8''a.txt", "a.txt"),
            ("/x", "attachment; filename*=UTF-8''%e2%82%ac.txt; filename=b.txt", "___.txt"),
        ] as [(String, String?, String)]
    )
    func harmless(target: String, disposition: String?, expected: String) {
        #expect(name(target, disposition).harmless == expected)
    }

    @Test("a long name is cut to 100 bytes and is still not a record's")
    func longHarmlessName() {
        let cut = name("/" + String(repeating: "a", count: 95) + ".json.and.more", nil).harmless
        #expect(cut.utf8.count == 100)
        #expect(!cut.hasSuffix(".json"))
    }

    @Test(
        "a stored file has the client's name as far as the file system allows",
        arguments: [
            ("/a/report.pdf", nil, "report.pdf"),
            ("/a/gr%C3%BCn%20%26.txt", nil, "gr\u{fc}n &.txt"),
            ("/a/..", nil, "_."), ("/", nil, "upload"), ("/a/%0a%00", nil, "upload"),
            ("/-rf", nil, "_rf"), ("/.hidden", nil, "_hidden"), ("/r.json", nil, "r.json_"),
            ("/%E2%80%AEx", nil, "x"), ("/a%2F-b", nil, "_b"), ("/.json", nil, "_json"),
            ("/x", "attachment; filename=\"two  spaces.txt\"", "two  spaces.txt"),
            ("/x", "attachment; filename*=UTF-8''%e2%82%ac.txt; filename=b.txt", "\u{20ac}.txt"),
            ("/e%CC%81", nil, "e\u{301}"), ("/%C3%A9", nil, "\u{e9}"),
        ] as [(String, String?, String)]
    )
    func stored(target: String, disposition: String?, expected: String) {
        #expect(name(target, disposition).stored().hasSameBytes(as: expected))
    }

    @Test("only after the file system refuses a name it gets one that all accept")
    func refusedName() throws {
        let name = name("/gr%C3%BC%C3%9Fe%20.txt", nil)
        for number in [ENAMETOOLONG, EINVAL, EILSEQ] {
            var tried: [String] = []
            let stored = try name.storing { told in
                tried.append(told)
                if tried.count == 1 {
                    throw SystemError(call: "openat", subject: told, errno: number)
                }
                return told
            }
            #expect(tried == ["gr\u{fc}\u{df}e .txt", "gr____e_.txt"] && stored == tried[1])
        }
        for (target, number) in [("/gr%C3%BC%C3%9Fe", EACCES), ("/plain", EINVAL)] {
            var count = 0
            #expect(throws: SystemError.self) {
                try self.name(target, nil).storing { told in
                    count += 1
                    throw SystemError(call: "openat", subject: told, errno: number)
                }
            }
            #expect(count == 1)
        }
    }

    @Test("a stored name that is too long is cut before its ending, between characters")
    func longStoredName() {
        #expect(ClientFileName.maximumStored == 217)
        let wide = name("/" + String(repeating: "\u{e9}", count: 150) + ".jpeg", nil).stored()
        #expect(wide == String(repeating: "\u{e9}", count: 106) + ".jpeg")
        for count in 200...230 {
            let record = name("/" + String(repeating: "a", count: count) + ".json", nil).stored()
            #expect(record.hasSuffix(".json_") && record.utf8.count <= 217)
        }
        let endless = name("/" + String(repeating: "\u{20ac}", count: 20_000), nil).stored()
        #expect(endless == String(repeating: "\u{20ac}", count: 72))
    }

    @Test(
        "a form has the client's own name, without path and control characters",
        arguments: [
            ("attachment; filename=\"the file.txt\"", "the file.txt"),
            ("attachment; filename*=UTF-8''na%C3%AFve%20%e2%82%ac.txt; filename=b", "naïve €.txt"),
            ("attachment; filename=b; filename*=iso-8859-1'en'%A3%20rates", "£ rates"),
            ("attachment; filename*=koi8-r''%c1; filename=plain.txt", "plain.txt"),
            ("attachment; filename*=UTF-8''..%2f..%2fetc%2fpasswd", "passwd"),
            ("attachment; filename*=UTF-8''a%0D%0Ab%00.txt", "ab.txt"),
            ("attachment; filename*=UTF-8''gpj%E2%80%AE.exe", "gpj.exe"),
            ("attachment; filename=\"a\\\"b.txt\"", "a\"b.txt"),
            ("attachment; filename=\"..\"", "upload"), ("attachment; filename=\".\"", "upload"),
            ("attachment; filename*=UTF-8''%01%02", "upload"),
            ("attachment; filename=\"a/\"", "segment"), ("inline", "segment"),
            ("attachment; filename=caf\u{e9}.txt", "café.txt"),
            ("attachment; filename=.htaccess", ".htaccess"),
        ]
    )
    func text(disposition: String, expected: String) {
        #expect(name("/a/segment?b", disposition).text == expected)
    }

    @Test("a name of 300 bytes is cut to 255, its ending and its characters whole")
    func longName() {
        let ascii = name("/" + String(repeating: "a", count: 296) + ".txt", nil).text
        #expect(ascii == String(repeating: "a", count: 251) + ".txt")
        let wide = name("/" + String(repeating: "é", count: 150) + ".jpeg", nil).text
        #expect(wide == String(repeating: "é", count: 125) + ".jpeg")
        let ending = name("/" + "a." + String(repeating: "b", count: 300), nil).text
        #expect(ending.utf8.count == 255)
    }

    @Test("metadata names the file if Content-Disposition does not")
    func metadataName() {
        var fields: HTTPFields = [.uploadMetadata: "filename d29ybGQucG5n,filetype aW1hZ2UvcG5n"]
        #expect(ClientFileName(target: "/a/b", fields: fields).text == "world.png")
        fields[.contentDisposition] = "attachment; filename=mine.png"
        #expect(ClientFileName(target: "/a/b", fields: fields).text == "mine.png")
    }

    @Test("pairs of metadata are read, malformed ones omitted")
    func metadata() {
        let fields: HTTPFields = [
            .uploadMetadata:
                "filename d29ybGQ=, is_private,a w6k, a Yg==,b !!!,c d e, ü YQ==,d /w=="
        ]
        let metadata = UploadMetadata(fields)
        #expect(metadata.pairs.map(\.key) == ["filename", "is_private", "a", "d"])
        #expect(metadata.pairs.map(\.value) == ["world", "", "é", "\u{FFFD}"])
        #expect(metadata["is_private"] == nil)
        #expect(metadata.others.map(\.key) == ["is_private", "a", "d"])
        #expect(UploadMetadata([:]).pairs.isEmpty)
    }

    @Test("a form is written as a browser writes one")
    func multipart() {
        let form = MultipartForm(
            boundary: "B",
            fields: [("a\"b\r\nX: y", "line\r\n--B--"), ("é", "")],
            file: ("f", "q\"\r\n.txt", "text/plain\r\nX: y")
        )
        #expect(form.contentType == "multipart/form-data; boundary=B")
        let before = [
            "--B", "Content-Disposition: form-data; name=\"a%22b%0D%0AX: y\"", "", "line", "--B--",
            "--B", "Content-Disposition: form-data; name=\"é\"", "", "",
            "--B", "Content-Disposition: form-data; name=\"f\"; filename=\"q%22%0D%0A.txt\"",
            "Content-Type: text/plainX: y", "", "",
        ]
        #expect(String(decoding: form.before, as: UTF8.self) == before.joined(separator: "\r\n"))
        #expect(String(decoding: form.after, as: UTF8.self) == "\r\n--B--\r\n")
    }

    @Test("names that a form parser may confuse have one key")
    func fieldKeys() {
        for name in ["user_id", "User.ID", "user id", " user_id", "user_id[a]", "user-id"] {
            #expect(FormFieldName.key(name) == "user_id")
        }
        #expect(FormFieldName.key("user_ids") != FormFieldName.key("user_id"))
        #expect(FormFieldName.key("é") != FormFieldName.key("è"))
    }

    @Test("the signature depends only on the members")
    func notice() {
        var one = HandoverNotice()
        one.add("size", "12")
        one.add("name", "é&=\n")
        var other = HandoverNotice()
        other.add("name", "é&=\n")
        other.add("size", "12")
        #expect(one.signedText == other.signedText)
        #expect(String(decoding: one.signedText, as: UTF8.self) == "4:name,5:é&=\n,4:size,2:12,")
        #expect(String(decoding: one.content, as: UTF8.self) == "size=12&name=%C3%A9%26%3D%0A")
        var confusable = HandoverNotice()
        confusable.add("size", "12,4:name,5:é&=\n")
        #expect(confusable.signedText != one.signedText)
    }

    @Test("no client's bytes break a parser, and every name obeys its rules")
    func anything() {
        let pieces = [
            "attachment", "form-data", ";", "filename=", "filename*=", "UTF-8''", "iso-8859-1'en'",
            "\"", "\\", "/", "..", ".", "%", "%2f", "%0d%0a", "%e2%80", "%ff", "é", "\u{301}", "😀",
            " ",
            "\t", "=", "'", ",", "a", "sha-256", "=:", ":", "AAAA", "?1", "(", ")", "10", "-",
            String(repeating: "x", count: 120), ".json",
        ]
        var random = SplitMix(seed: 1)
        func text() -> String {
            (0..<Int.random(in: 0...12, using: &random)).map { _ in
                pieces.randomElement(using: &random) ?? ""
            }.joined()
        }
        let safe = Set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-".utf8)
        for _ in 0..<3_000 {
            var fields = HTTPFields()
            for name in [
                HTTPField.Name.contentDisposition, .uploadMetadata, .reprDigest, .wantReprDigest,
            ] where Bool.random(using: &random) {
                fields.append(HTTPField(name: name, value: text()))
            }
            let name = ClientFileName(target: "/" + text(), fields: fields)
            #expect((1...255).contains(name.text.utf8.count), "\(fields)")
            let controls = name.text.unicodeScalars.contains { $0.value < 32 || $0.value == 127 }
            #expect(!controls && !name.text.contains("/") && !name.text.contains("\\"))
            let harmless = name.harmless
            #expect((1...100).contains(harmless.utf8.count))
            #expect(harmless.utf8.allSatisfy { safe.contains($0) })
            let stored = name.stored()
            #expect((1...217).contains(stored.utf8.count))
            #expect(!stored.hasPrefix(".") && !stored.hasPrefix("-") && !stored.contains("/"))
            #expect(!stored.utf8.map { $0 | 0x20 }.suffix(5).elementsEqual(".json".utf8))
            #expect(!harmless.hasPrefix(".") && !harmless.lowercased().hasSuffix(".json"))
            _ = try? DigestValues(.reprDigest, in: fields)
            _ = DigestAlgorithm.wanted(in: fields)
        }
    }
}
