import Foundation
import HTTPTypes
import SpoolgateTestSupport
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateUpstream

@Suite("A directory as the upstream")
struct DirectoryDropTests {
    private let id = UploadID(high: 1, low: 2)

    private func request(
        _ target: String = "/in/a%20b.txt?x",
        _ fields: HTTPFields = [.contentType: "text/plain"],
        content: UpstreamContent,
        method: HTTPRequest.Method = .put,
        isUpload: Bool = true
    ) -> UpstreamRequest {
        UpstreamRequest(
            method: method,
            target: target,
            fields: fields,
            content: content,
            upload: isUpload ? id : nil
        )
    }

    private func drop(
        _ request: UpstreamRequest,
        in directory: ScratchDirectory
    ) throws -> (AttemptOutcome, RecordingSink) {
        let sink = RecordingSink()
        return (try upstream("directory:\(directory.path)").attempt(request, sink: sink), sink)
    }

    private func bytes(_ path: String) throws -> [UInt8] {
        Array(try Data(contentsOf: URL(fileURLWithPath: path)))
    }

    /// An open file of `length` pattern bytes; unlinked if `isNameless`.
    private func openFile(
        _ length: Int64,
        in directory: ScratchDirectory,
        isNameless: Bool = false
    ) throws -> (OpenFile, UpstreamContent) {
        let path = directory.file("data")
        try Data((0..<Int(length)).map { UInt8($0 % 251) }).write(to: URL(fileURLWithPath: path))
        let number = open(path, O_RDWR | O_CLOEXEC)
        try #require(number >= 0)
        if isNameless { unlink(path) }
        let content = UpstreamContent.file(descriptor: number, length: length) { buffer, position in
            pread(number, buffer.baseAddress, buffer.count, off_t(position))
        }
        return (OpenFile(number), content)
    }

    @Test("an upload becomes a file and a record, and 201")
    func upload() throws {
        let directory = try ScratchDirectory()
        let (outcome, sink) = try drop(request(content: pattern(300_000)), in: directory)
        #expect(outcome == .responded)
        let file = "\(id)-a b.txt"
        #expect(directory.names == [file, "\(file).json"])
        let content = try bytes(directory.file(file))
        #expect(content.count == 300_000)
        #expect(isPattern(content))
        let record = try #require(
            try JSONSerialization.jsonObject(with: Data(bytes(directory.file("\(file).json"))))
                as? [String: Any]
        )
        #expect(record["id"] as? String == "\(id)")
        #expect(record["name"] as? String == "a b.txt")
        #expect(record["file"] as? String == file)
        #expect(record["method"] as? String == "PUT")
        #expect(record["target"] as? String == "/in/a%20b.txt?x")
        #expect(record["length"] as? Int == 300_000)
        #expect(record["content-type"] as? String == "text/plain")
        let received = try #require(record["received"] as? String)
        #expect(ISO8601DateFormatter().date(from: received) != nil)
        for name in directory.names {
            let attributes = try FileManager.default.attributesOfItem(
                atPath: directory.file(name)
            )
            #expect(attributes[.posixPermissions] as? Int == 0o640)
        }
        #expect(sink.head?.status == .created)
        #expect(sink.head?.fields[.contentType] == "application/json")
        #expect(sink.head?.fields[.location] == nil)
        #expect(sink.text == "{\"id\":\"\(id)\",\"name\":\"a b.txt\",\"length\":300000}\n")
        #expect(sink.contentLength == Int64(sink.content.count))
    }

    @Test("a record has the upload's metadata, in the client's own words")
    func facts() throws {
        let directory = try ScratchDirectory()
        var request = request(content: .bytes([1]))
        let stated = "Gr\u{fc}n\u{202e} \"x\"\u{1}.json"
        request.facts = UploadFacts(
            target: "/other",
            fields: [
                .contentDisposition: "attachment; filename*=UTF-8\'\'" + PercentText.encode(stated),
                .uploadMetadata: "filename YS50eHQ=,note w7w=,empty", .contentEncoding: "gzip",
            ],
            owner: "jos\u{e9}",
            digests: [("sha-256", "00ff")]
        )
        #expect(try drop(request, in: directory).0 == .responded)
        let file = "\(id)-Gr\u{fc}n \"x\".json_"
        #expect(directory.names == [file, "\(file).json"])
        let text = try bytes(directory.file("\(file).json"))
        let record = try #require(
            try JSONSerialization.jsonObject(with: Data(text)) as? [String: Any]
        )
        #expect(record["name"] as? String == stated)
        #expect(record["file"] as? String == file)
        #expect(record["owner"] as? String == "jos\u{e9}")
        #expect(record["content-encoding"] as? String == "gzip")
        #expect(
            record["metadata"] as? [String: String] == [
                "filename": "a.txt", "note": "\u{fc}", "empty": "",
            ]
        )
        #expect(record["digest"] as? [String: String] == ["sha-256": "00ff"])
        // A request without optional fields.
        let other = try ScratchDirectory()
        #expect(try drop(self.request(content: .none), in: other).0 == .responded)
        let plain = try #require(
            try JSONSerialization.jsonObject(
                with: Data(bytes(other.file("\(id)-a b.txt.json")))
            ) as? [String: Any]
        )
        #expect(plain["owner"] is NSNull && plain["content-encoding"] is NSNull)
        #expect((plain["metadata"] as? [String: String])?.isEmpty == true)
        #expect((plain["digest"] as? [String: String])?.isEmpty == true)
    }

    @Test("a name of any length makes two files, its ending kept")
    func longNames() throws {
        for count in [200, 217, 218, 255, 5_000] {
            let directory = try ScratchDirectory()
            let target = "/" + String(repeating: "%C3%A9", count: count / 2) + ".tar.gz"
            #expect(try drop(request(target, content: .none), in: directory).0 == .responded)
            #expect(directory.names.count == 2)
            #expect(directory.names.allSatisfy { $0.utf8.count <= 255 })
            #expect(directory.names.first?.hasSuffix("\u{e9}.gz") == true || count < 217)
        }
    }

    @Test("an open file of the same file system is linked; dropping it again changes nothing")
    func link() throws {
        let spool = try ScratchDirectory()
        let directory = try ScratchDirectory()
        let (descriptor, content) = try openFile(100_000, in: spool)
        for _ in 0..<3 {
            let (outcome, sink) = try drop(request(content: content), in: directory)
            #expect(outcome == .responded)
            #expect(sink.head?.status.code == 201)
        }
        let file = "\(id)-a b.txt"
        #expect(directory.names == [file, "\(file).json"])
        let linked = try FileManager.default.attributesOfItem(atPath: directory.file(file))
        var status = stat()
        #expect(fstat(descriptor.number, &status) == 0)
        #expect(linked[.systemFileNumber] as? UInt64 == UInt64(status.st_ino))
        #expect(status.st_nlink == 2)
        #expect(isPattern(try bytes(directory.file(file))))
    }

    @Test("a file that cannot be linked is copied: another file system, no name, another length")
    func copy() throws {
        let local = try ScratchDirectory()
        var cases: [(ScratchDirectory, isNameless: Bool, cut: Int64)] = [
            (local, true, 0), (local, false, 1),
        ]
        let memory = try ScratchDirectory(in: ScratchDirectory.memory)
        cases.append((memory, false, 0))
        for (spool, isNameless, cut) in cases {
            let directory = try ScratchDirectory()
            let (descriptor, whole) = try openFile(700_000, in: spool, isNameless: isNameless)
            guard case .file(_, let length, let read) = whole else { return }
            let content = UpstreamContent.file(
                descriptor: descriptor.number,
                length: length - cut,
                read: read
            )
            let (outcome, _) = try drop(request(content: content), in: directory)
            #expect(outcome == .responded, "\(outcome)")
            let copied = try bytes(directory.file("\(id)-a b.txt"))
            #expect(copied.count == 700_000 - Int(cut))
            #expect(isPattern(copied))
            #expect(directory.names.count == 2)
        }
    }

    @Test(
        "a nameless file of the spool is linked into place",
        .enabled(if: temporaryFileFlag != nil)
    )
    func nameless() throws {
        let directory = try ScratchDirectory()
        let flag = try #require(temporaryFileFlag)
        let number = open(directory.path, O_RDWR | flag | O_CLOEXEC, 0o600)
        try #require(number >= 0)
        let descriptor = OpenFile(number)
        try #require(write(descriptor.number, "abc", 3) == 3)
        let content = UpstreamContent.file(descriptor: number, length: 3) { buffer, position in
            Issue.record("it was copied")
            return pread(number, buffer.baseAddress, buffer.count, off_t(position))
        }
        let (outcome, _) = try drop(request(content: content), in: directory)
        #expect(outcome == .responded)
        #expect(try bytes(directory.file("\(id)-a b.txt")) == Array("abc".utf8))
    }

    @Test("streams, bytes and empty content are uploads too")
    func otherContent() throws {
        let contents: [(UpstreamContent, Int)] = [
            (.none, 0), (.bytes([0, 1]), 2),
            (patternStream(600_000, piece: 7000, saysLength: false), 600_000),
        ]
        for (content, count) in contents {
            let directory = try ScratchDirectory()
            let (outcome, _) = try drop(request(content: content), in: directory)
            #expect(outcome == .responded)
            #expect(try bytes(directory.file("\(id)-a b.txt")).count == count)
        }
    }

    @Test(
        "a request that is no upload gets 405 and leaves nothing",
        arguments: [HTTPRequest.Method.get, .head, .delete]
    )
    func notAnUpload(method: HTTPRequest.Method) throws {
        let directory = try ScratchDirectory()
        let (outcome, sink) = try drop(
            request(content: .none, method: method, isUpload: false),
            in: directory
        )
        #expect(outcome == .responded)
        #expect(sink.head?.status.code == 405)
        #expect(sink.head?.fields[.allow] == "POST, PUT, PATCH")
        #expect(sink.content.isEmpty == (method == .head))
        #expect(directory.names.isEmpty)
    }

    @Test("content that fails aborts the drop and leaves nothing")
    func brokenContent() throws {
        let directory = try ScratchDirectory()
        let broken: [UpstreamContent] = [
            .stream(length: nil) { _ in throw RecordingSink.Refused() },
            .file(descriptor: nil, length: 9) { _, position in position > 0 ? 0 : 3 },
        ]
        for content in broken {
            let (outcome, sink) = try drop(request(content: content), in: directory)
            #expect(outcome.isPeerGone, "\(outcome)")
            #expect(sink.head == nil)
            #expect(directory.names.isEmpty)
        }
    }

    @Test("a missing directory, or a file in its place, is not reached")
    func missing() throws {
        let directory = try ScratchDirectory()
        try Data().write(to: URL(fileURLWithPath: directory.file("file")))
        for name in ["none", "file"] {
            let outcome = try upstream("directory:\(directory.file(name))").attempt(
                request(content: .bytes([1])),
                sink: RecordingSink()
            )
            #expect(outcome.isNotReached)
            #expect(outcome.reason.contains(directory.file(name)))
            #expect(outcome.reason.contains("check that the directory exists"))
        }
    }

    @Test(
        "a full disk is reported as such, and the partial file is removed",
        .enabled(if: geteuid() == 0)
    )
    func full() throws {
        let directory = try ScratchDirectory()
        let mounted = mount("none", directory.path, "tmpfs", 0, "size=64k")
        guard mounted == 0 else { try Test.cancel("a tmpfs cannot be mounted here") }
        defer { umount2(directory.path, 2) }
        let (outcome, _) = try drop(request(content: pattern(1 << 20)), in: directory)
        guard case .noRoom(let reason) = outcome else {
            Issue.record("\(outcome)")
            return
        }
        #expect(reason.contains("No space left"))
        #expect(directory.names.isEmpty)
    }

    @Test(
        "a full disk leaves no content without a record, except content dropped earlier",
        .enabled(if: geteuid() == 0)
    )
    func fullForRecord() throws {
        let directory = try ScratchDirectory()
        // One page for the record's name, none for its text.
        let mounted = mount("none", directory.path, "tmpfs", 0, "size=64k")
        guard mounted == 0 else { try Test.cancel("a tmpfs cannot be mounted here") }
        defer { umount2(directory.path, 2) }
        let content = pattern(64 << 10)
        let (outcome, _) = try drop(request(content: content), in: directory)
        #expect(outcome.reason.contains("No space left"), "\(outcome)")
        #expect(directory.names.isEmpty)
        #expect(try drop(request(content: pattern(1 << 10)), in: directory).0 == .responded)
        #expect(try !(drop(request(content: pattern(1 << 20)), in: directory).0 == .responded))
        #expect(directory.names.count == 2)
    }
}

private final class OpenFile {
    let number: Int32
    init(_ number: Int32) { self.number = number }
    deinit { close(number) }
}

/// O_TMPFILE, which Swift does not import; nil if the file system does not support it.
private let temporaryFileFlag: Int32? = {
    let flag = Int32(0o20_000_000) | O_DIRECTORY
    let number = open(NSTemporaryDirectory(), O_RDWR | flag, 0o600)
    guard number >= 0 else { return nil }
    close(number)
    return flag
}()
