// Destinations of downloads: files in use or left by another download, devices and FIFOs.

import Foundation
import HTTPTypes
import SpoolgatePosix
import SpoolgateTestSupport
import Testing

@testable import ResumableUpload

@Suite("Destinations of downloads")
struct DownloadPlaceTests {
    private static let names = [#"ETag: "v1""#]

    @Test("two downloads to one file: the second gets an error, also by another path")
    func twoIntoOne() async throws {
        let bytes = pattern(300_000)
        let isFree = Monitor(false)
        let origin = try DownloadOrigin { asked in
            // All but the first wait until the other downloads are refused.
            let isFirst = asked.number == 0
            if !isFirst { _ = isFree.wait(until: .after(.seconds(60))) { $0 ? true : nil } }
            return isFirst
                ? .whole(bytes, Self.names, cut: 50_000)
                : asked.range == nil
                    ? .whole(bytes, Self.names) : .part(bytes, from: asked.start, Self.names)
        }
        let directory = try ScratchDirectory()
        try FileManager.default.createDirectory(
            atPath: directory.file("sub"),
            withIntermediateDirectories: false
        )
        let first = Download(
            origin.url,
            to: .file(directory.file("film")),
            options: DownloadOrigin.options
        )
        let run = Task { try await first.run() }
        try await comesTrue("the first is at work") { origin.requests.count == 2 }
        try FileManager.default.linkItem(
            atPath: directory.file("film.part"),
            toPath: directory.file("hard.part")
        )
        try FileManager.default.createSymbolicLink(
            atPath: directory.file("soft.part"),
            withDestinationPath: "film.part"
        )
        for other in ["film", "sub/../film", "./sub/./../film", "hard", "soft"] {
            let outcome = DownloadOutcome(
                origin.origin.base + "/g",
                to: .file(directory.path + "/" + other)
            )
            #expect(outcome.error?.kind == .later, "\(other)")
            let sentence = "another download is writing to \(directory.path)/\(other).part"
            #expect(outcome.error?.reason.contains(sentence) == true, "\(outcome.result)")
        }
        #expect(origin.requests.count == 2)
        isFree.update { $0 = true }
        _ = try await run.value
        #expect(directory.content("film") == bytes)
        let after = DownloadOutcome(origin.url, to: .file(directory.file("film")))
        #expect(after.error == nil)
    }

    @Test("many downloads to one file at a time: the file is from a single download")
    func manyIntoOne() throws {
        let origin = try LoopbackOrigin { connection in
            while let request = try connection.receiveRequest() {
                let byte = UInt8(request.target.utf8.last ?? 0)
                let content = String(repeating: Character(Unicode.Scalar(byte)), count: 200_000)
                try connection.response("200 OK", fields: [#"ETag: "\#(byte)""#], content: content)
            }
        }
        let directory = try ScratchDirectory()
        let outcomes = try Parallel.run(8) { index in
            (0..<20).map { _ in
                DownloadOutcome(
                    origin.base + "/\(index)",
                    to: .file(directory.file("film"))
                ).error?.kind
            }
        }.map { try $0.get() }
        let kinds = outcomes.flatMap { $0 }
        #expect(kinds.contains(nil))
        #expect(kinds.allSatisfy { $0 == nil || $0 == .later })
        let content = try #require(directory.content("film"))
        #expect(content.count == 200_000)
        #expect(Set(content).count == 1)
        #expect(directory.names == ["film"])
    }

    @Test("another download's part file is not taken for one's own")
    func otherLeft() throws {
        let (own, other) = (pattern(300_000), [UInt8](repeating: 7, count: 300_000))
        let origin = try DownloadOrigin { asked in
            asked.range == nil
                ? .whole(own, Self.names) : .part(own, from: asked.start, Self.names)
        }
        let strange = try DownloadOrigin { _ in .whole(other, [#"ETag: "x""#], cut: 100_000) }
        for came in [50_000, 200_000] {
            let begun = try DownloadOrigin { _ in .whole(own, Self.names, cut: came) }
            let directory = try ScratchDirectory()
            let place = Download.Destination.file(directory.file("film"))
            var options = DownloadOrigin.options
            options.connection.retryFor = .zero
            let first = DownloadOutcome(begun.url, to: place, options: options)
            #expect(first.error?.kind == .later)
            var token = try #require(first.download.token.flatMap { Download.Token($0.text) })
            #expect(token.offset == came && token.total == 300_000)
            token.url = origin.url

            let second = DownloadOutcome(strange.url, to: place, options: options)
            #expect(second.error?.kind == .later)
            let third = DownloadOutcome(origin.url, to: place, after: token)
            #expect(third.error == nil)
            #expect(third.anew.count == 1)
            #expect(directory.content("film") == own)
        }
    }

    @Test("data lost from a part file is fetched again")
    func lost() throws {
        let bytes = pattern(300_000)
        let origin = try DownloadOrigin { asked in
            asked.range == nil
                ? .whole(bytes, Self.names, cut: 100_000)
                : .part(bytes, from: asked.start, Self.names)
        }
        let directory = try ScratchDirectory()
        let place = Download.Destination.file(directory.file("film"))
        let token = Download.Token(url: origin.url, offset: 100_000, validator: #""v1""#)
        try Data(bytes.prefix(99_999)).write(to: URL(filePath: directory.file("film.part")))
        let outcome = DownloadOutcome(origin.url, to: place, after: token)
        #expect(outcome.error == nil)
        #expect(outcome.anew.count == 1)
        #expect(directory.content("film") == bytes)
    }

    @Test("a directory, and a part that is not a regular file, are refused with a reason")
    func refused() throws {
        let directory = try ScratchDirectory()
        let place = Download.Destination.file(directory.path)
        let first = DownloadOutcome("http://127.0.0.1:1/f", to: place)
        #expect(first.error?.kind == .invalid)
        #expect(first.error?.reason.contains("is a directory") == true)
        #expect(mkfifo(directory.file("f.part"), 0o600) == 0)
        let second = DownloadOutcome("http://127.0.0.1:1/f", to: .file(directory.file("f")))
        #expect(second.error?.kind == .unreadable)
        #expect(directory.names == ["f.part"])
    }

    // MARK: Devices and FIFOs

    @Test("a FIFO is waited for and written directly, across cuts, and keeps its name")
    func pipe() throws {
        let bytes = pattern(900_000)
        let origin = try DownloadOrigin { asked in
            asked.range == nil
                ? .whole(bytes, Self.names, cut: 300_000)
                : .part(bytes, from: asked.start, Self.names)
        }
        let directory = try ScratchDirectory()
        let path = directory.file("pipe")
        #expect(mkfifo(path, 0o600) == 0)
        let read = Monitor<Data?>(nil)
        try SpoolgatePosix.Thread.start(name: "reader") {
            let came = try? FileHandle(forReadingFrom: URL(filePath: path)).readToEnd()
            read.update { $0 = came ?? Data() }
        }
        let outcome = DownloadOutcome(origin.url, to: .file(path))
        #expect(try outcome.result.get().status.code == 206)
        let came = read.wait(until: .after(.seconds(60))) { $0 }
        #expect(came.map { Array($0) } == bytes)
        #expect(directory.names == ["pipe"])
    }

    @Test("a FIFO without a reader does not prevent a pause")
    func pausedPipe() async throws {
        let directory = try ScratchDirectory()
        let path = directory.file("pipe")
        #expect(mkfifo(path, 0o600) == 0)
        let download = Download("http://127.0.0.1:1/f", to: .file(path))
        let error = Monitor<TransferError?>(nil)
        Task {
            do { _ = try await download.run() } catch let ended as TransferError {
                error.update { $0 = ended }
            }
        }
        try await comesTrue("it ended") {
            // A pause has no effect before the run begins.
            download.requestPause()
            return error.update { $0 } != nil
        }
        #expect(error.update { $0 }?.kind == .paused)
    }

    @Test("a FIFO whose reader leaves ends the download with a reason, and no signal")
    func leftPipe() throws {
        let bytes = pattern(900_000)
        let origin = try DownloadOrigin { _ in .whole(bytes, Self.names) }
        let directory = try ScratchDirectory()
        let path = directory.file("pipe")
        #expect(mkfifo(path, 0o600) == 0)
        try SpoolgatePosix.Thread.start(name: "reader") {
            _ = try? FileHandle(forReadingFrom: URL(filePath: path)).read(upToCount: 1)
        }
        let outcome = DownloadOutcome(origin.url, to: .file(path))
        #expect(outcome.error?.kind == .unreadable)
        #expect(outcome.error?.reason.contains("write \(path): Broken pipe") == true)
    }

    @Test("a full device ends the download with a reason, and stays a device")
    func device() throws {
        let origin = try DownloadOrigin { _ in .whole(pattern(300_000), Self.names) }
        let directory = try ScratchDirectory()
        let path = directory.file("full")
        // A link: replacing it does not harm the machine.
        try FileManager.default.createSymbolicLink(atPath: path, withDestinationPath: "/dev/full")
        let outcome = DownloadOutcome(origin.url, to: .file(path))
        #expect(outcome.error?.kind == .unreadable)
        #expect(outcome.error?.reason.contains("write \(path): No space left on device") == true)
        #expect(directory.names == ["full"])
        let target = try FileManager.default.destinationOfSymbolicLink(atPath: path)
        #expect(target == "/dev/full")
    }
}
