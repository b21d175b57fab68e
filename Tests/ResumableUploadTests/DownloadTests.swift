// Downloads from a server that sends parts, interrupts responses and changes its representation.

import Foundation
import HTTPTypes
import SpoolgatePosix
import SpoolgateTestSupport
import Testing

@testable import ResumableUpload

private final class Shelf: Sendable {
    struct State {
        var bytes: [UInt8]
        var validator: String
        /// The content bytes after which each response is interrupted; then none is.
        var cuts: [Int]
        var ranges: [String?] = []
        /// `Repr-Digest` with 200 and with 206; nil: none.
        var digest: String?
        var partDigest: String?
    }

    let state: Monitor<State>
    let origin: LoopbackOrigin

    init(_ bytes: [UInt8], _ validator: String, cuts: [Int] = [], givesParts: Bool = true) throws {
        let state = Monitor(State(bytes: bytes, validator: validator, cuts: cuts))
        self.state = state
        origin = try LoopbackOrigin { connection in
            while let request = try connection.receiveRequest() {
                let range = request.values("Range").first
                let (now, cut) = state.update { state -> (State, Int?) in
                    state.ranges.append(range)
                    let cut = state.cuts.isEmpty ? nil : state.cuts.removeFirst()
                    return (state, cut)
                }
                let start = range.flatMap { Int($0.dropFirst(6).dropLast()) } ?? 0
                let isPart =
                    givesParts && range != nil && request.values("If-Range") == [now.validator]
                if isPart, start >= now.bytes.count {
                    try connection.response(
                        "416 No",
                        fields: ["Content-Range: bytes */\(now.bytes.count)"]
                    )
                    continue
                }
                let content = isPart ? Array(now.bytes[start...]) : now.bytes
                let name = now.validator.hasPrefix("\"") ? "ETag" : "Last-Modified"
                // At least a minute later, which makes `Last-Modified` strong.
                var head =
                    "HTTP/1.1 \(isPart ? "206 Part" : "200 OK")\r\n\(name): \(now.validator)\r\n"
                    + "Date: Sun, 22 Nov 2026 17:00:00 GMT\r\n"
                    + "Content-Length: \(content.count)\r\n"
                if let digest = isPart ? now.partDigest : now.digest {
                    head += "Repr-Digest: \(digest)\r\n"
                }
                if isPart {
                    head +=
                        "Content-Range: bytes \(start)-\(now.bytes.count - 1)/\(now.bytes.count)\r\n"
                }
                try connection.send(head + "\r\n")
                try connection.send(Array(content.prefix(cut ?? .max)))
                if cut != nil { throw LoopbackOrigin.Ended() }
            }
        }
    }
}

@Suite("Downloads")
struct DownloadTests {
    fileprivate var options: Download.Options {
        var options = Download.Options()
        options.connection.firstPause = .milliseconds(5)
        options.connection.retryFor = .seconds(60)
        options.connection.usesProxies = false
        return options
    }

    @Test(
        "cut at random places, byte-identical, by entity tag and by date",
        arguments: ["\"v1\"", "Sun, 22 Nov 2026 16:17:38 GMT"]
    )
    func cut(validator: String) throws {
        var random = SplitMix(seed: 1)
        let bytes = pattern(900_000)
        let cuts = (0..<20).map { _ in Int.random(in: 0..<80_000, using: &random) }
        let shelf = try Shelf(bytes, validator, cuts: cuts)
        let directory = try ScratchDirectory()
        let path = directory.path + "/film"
        let download = Download(shelf.origin.base + "/film", to: .file(path), options: options)
        let response = try download.perform()
        #expect(response.status.code == 206)
        #expect(try Array(Data(contentsOf: URL(filePath: path))) == bytes)
        #expect(!FileManager.default.fileExists(atPath: path + ".part"))
        #expect(download.token == nil)
        #expect(shelf.state.update { $0.ranges.count } > 10)
    }

    @Test("in order, once, to a function")
    func handedOver() throws {
        let bytes = pattern(300_000)
        let shelf = try Shelf(bytes, "\"v1\"", cuts: [100, 70_000])
        let taken = Monitor<[UInt8]>([])
        let place = Download.Destination.pieces { piece in taken.update { $0 += piece } }
        _ = try Download(shelf.origin.base + "/f", to: place, options: options).perform()
        #expect(taken.update { $0 } == bytes)
    }

    @Test("another representation: a file starts over, and delivered pieces are refused")
    func changed() throws {
        let (old, new) = (pattern(300_000), Array(pattern(200_000).reversed()))
        for isFile in [true, false] {
            let shelf = try Shelf(old, "\"v1\"", cuts: [50_000])
            let directory = try ScratchDirectory()
            let path = directory.path + "/film"
            let events = Monitor<[Download.Event]>([])
            let place: Download.Destination = isFile ? .file(path) : .pieces { _ in }
            let download = Download(shelf.origin.base + "/f", to: place, options: options) {
                event in
                events.update { $0.append(event) }
                guard case .waiting = event else { return }
                shelf.state.update { ($0.bytes, $0.validator) = (new, "\"v2\"") }
            }
            let result = Result { () throws(TransferError) in try download.perform() }
            if isFile {
                #expect(try result.get().status == .ok)
                #expect(try Array(Data(contentsOf: URL(filePath: path))) == new)
                let anew = events.update { $0 }.contains {
                    if case .begunAnew = $0 { true } else { false }
                }
                #expect(anew)
            } else {
                #expect(result.error?.kind == .changed)
            }
        }
    }

    @Test("paused, and resumed from the token's text in another run")
    func resumed() async throws {
        // More than a rate limit's burst.
        let random = try FileHandle(forReadingFrom: URL(filePath: "/dev/urandom"))
        let bytes = [UInt8](try random.read(upToCount: 24_000_000) ?? Data())
        let shelf = try Shelf(bytes, "\"v1\"")
        let directory = try ScratchDirectory()
        let path = directory.path + "/film"
        var slow = options
        slow.connection.rateLimit = 3_000_000
        let first = Download(shelf.origin.base + "/f", to: .file(path), options: slow)
        let run = Task { try await first.run() }
        try await comesTrue("some content is durable") { first.token?.offset ?? 0 > 0 }
        let paused = await first.pause()
        let token = try #require(paused.flatMap { Download.Token($0.text) })
        await #expect(throws: TransferError.self) { try await run.value }
        #expect(token.offset > 0 && token.offset < 24_000_000 && token == paused)
        #expect(!FileManager.default.fileExists(atPath: path))
        let second = Download.resume(from: token, to: .file(path), options: options)
        #expect(try second.perform().status.code == 206)
        #expect(try Array(Data(contentsOf: URL(filePath: path))) == bytes)
    }

    // MARK: Digests

    /// Computed by openssl.
    private static func digest(_ bytes: [UInt8], of function: String = "sha256") throws -> String {
        let process = Process()
        process.executableURL = URL(filePath: "/usr/bin/openssl")
        process.arguments = ["dgst", "-\(function)", "-binary"]
        let (input, output) = (Pipe(), Pipe())
        (process.standardInput, process.standardOutput) = (input, output)
        try process.run()
        try input.fileHandleForWriting.write(contentsOf: Data(bytes))
        try input.fileHandleForWriting.close()
        let value = try output.fileHandleForReading.readToEnd() ?? Data()
        process.waitUntilExit()
        let name = function == "sha256" ? "sha-256" : "sha-512"
        return "\(name)=:\(value.base64EncodedString()):"
    }

    private var verifying: Download.Options {
        var options = options
        options.verifiesDigest = true
        return options
    }

    @Test(
        "the content matches the digest, with either function",
        arguments: ["sha256", "sha512"]
    )
    func right(function: String) throws {
        let bytes = pattern(300_000)
        for isFile in [true, false] {
            let shelf = try Shelf(bytes, "\"v1\"", cuts: [100, 70_000])
            let digest = "md5=:AAAA:, " + (try Self.digest(bytes, of: function))
            shelf.state.update { $0.digest = digest }
            let directory = try ScratchDirectory()
            let path = directory.path + "/film"
            let taken = Monitor<[UInt8]>([])
            let place: Download.Destination =
                isFile ? .file(path) : .pieces { piece in taken.update { $0 += piece } }
            _ = try Download(shelf.origin.base + "/f", to: place, options: verifying).perform()
            let came =
                isFile ? try Array(Data(contentsOf: URL(filePath: path))) : taken.update { $0 }
            #expect(came == bytes)
            #expect(shelf.state.update { $0.ranges.count } == 3)
            let wanted = shelf.origin.requests.map { $0.values("Want-Repr-Digest") }
            #expect(wanted.allSatisfy { $0 == ["sha-256=10, sha-512=9"] })
        }
    }

    @Test("content that does not match the digest is fetched once more, and gets no name")
    func corrupt() throws {
        for isFile in [true, false] {
            let shelf = try Shelf(pattern(300_000), "\"v1\"")
            let other = try Self.digest(pattern(300_001))
            shelf.state.update { $0.digest = other }
            let directory = try ScratchDirectory()
            let path = directory.path + "/film"
            let place: Download.Destination = isFile ? .file(path) : .pieces { _ in }
            let download = Download(shelf.origin.base + "/f", to: place, options: verifying)
            let error = Result { () throws(TransferError) in try download.perform() }.error
            #expect(error?.kind == .corrupt, "\(error?.reason ?? "it was taken")")
            #expect(download.token == nil)
            #expect(shelf.state.update { $0.ranges } == (isFile ? [nil, nil] : [nil]))
            #expect(try FileManager.default.contentsOfDirectory(atPath: directory.path).isEmpty)
        }
    }

    @Test(
        "a download that cannot be verified does not begin",
        arguments: [nil, "md5=:AAAA:", "sha-256=:AAAA:", "x"]
    )
    func noDigest(value: String?) throws {
        let shelf = try Shelf(pattern(300_000), "\"v1\"")
        shelf.state.update { $0.digest = value }
        let directory = try ScratchDirectory()
        let path = directory.path + "/film"
        let download = Download(shelf.origin.base + "/f", to: .file(path), options: verifying)
        let error = Result { () throws(TransferError) in try download.perform() }.error
        #expect(error?.kind == .refused && error?.reason.contains("Repr-Digest") == true)
        #expect(!FileManager.default.fileExists(atPath: path))
        let token = Download.Token(url: shelf.origin.base + "/f", offset: 1, validator: "\"v1\"")
        let rest = Download.resume(from: token, to: .pieces { _ in }, options: verifying)
        #expect(Result { () throws(TransferError) in try rest.perform() }.error?.kind == .invalid)
    }

    @Test(
        "resumed with the token alone, data lost from the disk is detected",
        arguments: [50_000, 300_000]
    )
    func corruptPart(came: Int) throws {
        let bytes = pattern(300_000)
        let shelf = try Shelf(bytes, "\"v1\"")
        let digest = try Self.digest(bytes)
        shelf.state.update { $0.digest = digest }
        for isRight in [true, false] {
            let directory = try ScratchDirectory()
            let path = directory.path + "/film"
            var part = Array(bytes.prefix(came))
            if !isRight { part[4_096] ^= 1 }
            try Data(part).write(to: URL(filePath: path + ".part"))
            let token = Download.Token(
                url: shelf.origin.base + "/f",
                offset: Int64(came),
                validator: "\"v1\"",
                digest: digest
            )
            let kept = try #require(Download.Token(token.text))
            #expect(kept == token)
            shelf.state.update { $0.ranges = [] }
            _ = try Download.resume(from: kept, to: .file(path), options: verifying).perform()
            #expect(try Array(Data(contentsOf: URL(filePath: path))) == bytes)
            let range = "bytes=\(came)-"
            #expect(shelf.state.update { $0.ranges } == (isRight ? [range] : [range, nil]))
        }
    }

    @Test("a part with another digest starts the file over")
    func otherPart() throws {
        let bytes = pattern(300_000)
        let shelf = try Shelf(bytes, "\"v1\"", cuts: [50_000])
        let (digest, other) = (try Self.digest(bytes), try Self.digest(pattern(300_001)))
        shelf.state.update { ($0.digest, $0.partDigest) = (digest, other) }
        let directory = try ScratchDirectory()
        let place = Download.Destination.file(directory.path + "/film")
        let download = Download(shelf.origin.base + "/f", to: place, options: verifying)
        #expect(try download.perform().status == .ok)
        #expect(directory.content("film") == bytes)
        #expect(shelf.state.update { $0.ranges } == [nil, "bytes=50000-", nil])
    }

    @Test("a refusal has the server's words, and leaves no file")
    func refused() throws {
        let origin = try LoopbackOrigin(status: "403 No", content: "not you")
        let directory = try ScratchDirectory()
        let path = directory.path + "/film"
        let download = Download(origin.base + "/f", to: .file(path), options: options)
        let error = Result { () throws(TransferError) in try download.perform() }.error
        #expect(error?.kind == .refused && error?.response?.content == Array("not you".utf8))
        #expect(!FileManager.default.fileExists(atPath: path))
    }
}
