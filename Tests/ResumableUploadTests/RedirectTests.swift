// Responses that must not be taken for success: redirects, and another server's successes.

import Foundation
import HTTPTypes
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import Testing

@testable import ResumableUpload

@Suite("Responses that are not a success")
struct RedirectTests {
    private static let place = "https://new.example/files/a"
    private static let named = ["Location: \(place)"]

    private static func codes() -> [Int] { Array(300...308) + [399] }

    /// Whether this response to a whole body is the application's.
    private func isResponse(_ status: Int, _ method: HTTPRequest.Method, isTarget: Bool) -> Bool {
        switch status {
        case 302: method == .post
        case 303: method == .post || isTarget
        default: false
        }
    }

    @Test(
        "after one request with everything, only 302 and 303 to a POST are the application's response",
        arguments: codes(),
        [HTTPRequest.Method.post, .put, .patch]
    )
    func whole(status: Int, method: HTTPRequest.Method) async throws {
        for creation in [Upload.Options.Creation.plain, .optimistic] {
            for marker in [nil, "Upload-Complete: ?1", "Upload-Complete: ?0"] {
                let fields = Self.named + (marker.map { [$0] } ?? [])
                let origin = try UploadOrigin { _ in .response("\(status) Moved", fields) }
                var options = quickOptions(creation)
                options.method = method
                let url = origin.base + "/f"
                let result = await upload(.bytes(pattern(1_000)), to: url, options).result
                let isTarget = marker == "Upload-Complete: ?1"
                let words = "\(status) \(method) \(creation) \(marker ?? "")"
                if isResponse(status, method, isTarget: isTarget), marker != "Upload-Complete: ?0" {
                    let response = try result.get()
                    #expect(
                        response.status.code == status && response.place == Self.place,
                        "\(words)"
                    )
                } else {
                    #expect(result.error?.kind == .redirected, "\(words)")
                    #expect(result.error?.reason.contains("to \(Self.place);") == true, "\(words)")
                    #expect(result.error?.response?.status.code == status)
                    #expect(result.error?.mayWorkLater == false)
                }
                #expect(origin.asked.count == 1)
            }
        }
    }

    @Test(
        "a redirect is never the response to an empty creation or to a partly sent body",
        arguments: codes()
    )
    func parts(status: Int) async throws {
        for marker in [nil, "Upload-Complete: ?1"] {
            let fields = Self.named + (marker.map { [$0] } ?? [])
            let origin = try UploadOrigin { _ in .response("\(status) Moved", fields) }
            let bytes = pattern(300_000)
            for (body, creation) in [
                (Upload.Body.bytes(bytes), .careful), (.stream(pieces(bytes, of: 7_000)), .careful),
                (.stream(pieces(bytes, of: 7_000)), .optimistic),
            ] as [(Upload.Body, Upload.Options.Creation)] {
                let result = await upload(body, to: origin.base + "/f", quickOptions(creation))
                    .result
                #expect(result.error?.kind == .redirected)
                #expect(result.error?.reason.contains(Self.place) == true)
            }
        }
    }

    @Test(
        "a redirected append leaves the upload resumable, with any Location",
        arguments: codes()
    )
    func append(status: Int) async throws {
        let origin = try UploadOrigin { request in
            request.number == 1 ? .response("\(status) Moved", Self.named) : .serve
        }
        let bytes = pattern(300_000)
        let (result, _) = await upload(.bytes(bytes), to: origin.base + "/f", quickOptions())
        #expect(result.error?.kind == .redirected)
        let token = try #require(result.error?.token)
        #expect(origin.taken.isEmpty)
        let again = await upload(.bytes(bytes), to: origin.base + "/f", quickOptions(), from: token)
        #expect(try again.result.get().status == .created)
        #expect(origin.taken == [bytes])
    }

    @Test(
        "the final response of a complete upload is the target's, as for one request with everything",
        arguments: codes(),
        [HTTPRequest.Method.post, .put]
    )
    func final(status: Int, method: HTTPRequest.Method) async throws {
        let origin = try UploadOrigin { request in
            request.number == 1
                ? .response("\(status) Moved", ["Location: ../done?1", "Upload-Complete: ?1"])
                : .serve
        }
        var options = quickOptions()
        options.method = method
        let result = await upload(.bytes(pattern(300_000)), to: origin.base + "/a/f", options)
            .result
        if isResponse(status, method, isTarget: true) {
            #expect(try result.get().place == origin.base + "/a/../done?1")
        } else {
            #expect(result.error?.kind == .redirected)
            #expect(result.error?.token == nil)
        }
    }

    @Test(
        "a redirected offset retrieval ends the run and loses nothing",
        arguments: codes()
    )
    func retrieval(status: Int) async throws {
        for marker in [[], ["Upload-Complete: ?1"]] {
            let origin = try UploadOrigin { request in
                switch request.number {
                case 1: .cut(after: 100_000)
                case 2: .response("\(status) Moved", Self.named + marker)
                default: .serve
                }
            }
            let bytes = pattern(300_000)
            let (result, _) = await upload(.bytes(bytes), to: origin.base + "/f", quickOptions())
            #expect(result.error?.kind == .redirected)
            #expect(result.error?.reason.contains("HEAD ") == true)
            let token = try #require(result.error?.token)
            let again = await upload(
                .bytes(bytes),
                to: origin.base + "/f",
                quickOptions(),
                from: token
            )
            #expect(try again.result.get().status == .created)
            #expect(origin.taken == [bytes])
        }
    }

    @Test(
        "a redirect or required login at the last request is not a lost response",
        arguments: codes() + [401, 403, 407]
    )
    func lostAnswer(status: Int) async throws {
        let origin = try UploadOrigin { request in
            switch request.number {
            case 1: .loseAnswer
            case 3: .response("\(status) Elsewhere", Self.named)
            default: .serve
            }
        }
        let bytes = pattern(300_000)
        let (result, _) = await upload(.bytes(bytes), to: origin.base + "/f", quickOptions())
        #expect(
            result.error?.kind == (status < 400 ? .redirected : .refused)
        )
        let token = try #require(result.error?.token)
        let again = await upload(.bytes(bytes), to: origin.base + "/f", quickOptions(), from: token)
        #expect(try again.result.get().content == Array("taken".utf8))
        #expect(origin.taken == [bytes])
    }

    @Test(
        "a Location may be relative; without one there was no response",
        arguments: [302, 303, 307]
    )
    func places(status: Int) async throws {
        for (location, told) in [
            ("/done", "/done"), ("done", "/a/done"), ("?x", "/a/f?x"),
        ] {
            let origin = try UploadOrigin { _ in
                .response("\(status) Moved", ["Location: \(location)"])
            }
            let result = await upload(
                .bytes([1]),
                to: origin.base + "/a/f",
                quickOptions(.plain)
            ).result
            if status == 307 {
                #expect(result.error?.reason.contains(" to \(origin.base)\(told);") == true)
            } else {
                #expect(try result.get().place == origin.base + told)
            }
        }
        for fields in [[], ["Location: "]] {
            let origin = try UploadOrigin { _ in .response("\(status) Moved", fields) }
            let error = await upload(.bytes([1]), to: origin.base + "/f", quickOptions(.plain))
                .result.error
            #expect(error?.kind == .redirected)
            #expect(error?.reason.contains("it has no Location") == true)
        }
    }

    @Test(
        "a cancellation that is redirected, or that another server responds to, leaves the upload",
        arguments: codes() + [200]
    )
    func cancellation(status: Int) async throws {
        let origin = try UploadOrigin { request in
            switch request.method {
            case "PATCH": .response("403 No")
            case "DELETE": .response("\(status) Said", Self.named, content: "<html>")
            default: .serve
            }
        }
        let (result, _) = await upload(
            .bytes(pattern(300_000)),
            to: origin.base + "/f",
            quickOptions()
        )
        let token = try #require(result.error?.token)
        let removed = await TransferThread.run("test") {
            Result { () throws(TransferError) in
                try Upload.remove(token, options: quickOptions())
            }
        }
        let error = removed.error
        #expect(error?.kind == (status == 200 ? .unsupported : .redirected))
        #expect(error?.token == token)
        #expect(error?.reason.contains(Self.place) == (status != 200))
    }

    @Test("a cancellation with response 200 is believed if the upload is gone")
    func cancelledWith200() async throws {
        let origin = try UploadOrigin { request in
            switch request.method {
            case "PATCH": .response("403 No")
            case "DELETE": .response("200 OK")
            case "HEAD": .response("404 Not Found")
            default: .serve
            }
        }
        let (result, _) = await upload(
            .bytes(pattern(300_000)),
            to: origin.base + "/f",
            quickOptions()
        )
        let token = try #require(result.error?.token)
        let removed = await TransferThread.run("test") {
            Result { () throws(TransferError) in
                try Upload.remove(token, options: quickOptions())
            }
        }
        #expect(removed.error == nil)
    }

    // MARK: Successes of others

    @Test(
        "a network login page is not an append's success: the upload resource is checked"
    )
    func portal() async throws {
        let page = UploadOrigin.Reaction.response(
            "200 OK",
            ["Content-Type: text/html"],
            content: "<html>log in</html>"
        )
        let bytes = pattern(300_000)
        // Once: the network is open before the client retrieves the offset.
        let once = try UploadOrigin { $0.number == 1 ? page : .serve }
        let (result, _) = await upload(.bytes(bytes), to: once.base + "/f", quickOptions())
        #expect(try result.get().content == Array("taken".utf8))
        #expect(once.taken == [bytes])
        #expect(once.asked == ["POST /f", "PATCH /u/1", "HEAD /u/1", "PATCH /u/1"])
        // Always: the run ends with an error, and the upload can be resumed.
        let always = try UploadOrigin { $0.number > 0 ? page : .serve }
        let error = await upload(.bytes(bytes), to: always.base + "/f", quickOptions()).result.error
        #expect(error?.kind == .unsupported)
        #expect(error?.reason.contains("without an Upload-Offset") == true)
        #expect(error?.token != nil)
        #expect(always.taken.isEmpty)
        // In the middle of a stream, which must release no bytes.
        let middle = try UploadOrigin { $0.number == 2 ? page : .serve }
        let stream = await upload(
            .stream(pieces(bytes, of: 7_000)),
            to: middle.base + "/f",
            quickOptions()
        )
        #expect(try stream.result.get().status == .created)
        #expect(middle.taken == [bytes])
        // After a 104, which names the resource of an optimistic creation.
        let interim = try UploadOrigin { $0.number == 1 ? page : .serve }
        let optimistic = await upload(
            .bytes(bytes),
            to: interim.base + "/f",
            quickOptions(.optimistic)
        )
        #expect(try optimistic.result.get().status == .created)
    }

    @Test(
        "a final response without upload fields is believed once the resource confirms it",
        arguments: ["200 OK", "204 No Content"],
        ["204 No Content", "404 Not Found", "410 Gone"]
    )
    func silent(final: String, head: String) async throws {
        let bytes = pattern(300_000)
        let origin = try UploadOrigin { request in
            switch request.method {
            case "PATCH": .response(final, ["X-Said: yes"])
            case "HEAD":
                .response(head, head.hasPrefix("204") ? ["Upload-Offset: \(bytes.count)"] : [])
            default: .serve
            }
        }
        let (result, _) = await upload(.bytes(bytes), to: origin.base + "/f", quickOptions())
        let response = try result.get()
        #expect("\(response.status.code)" == final.prefix(3))
        #expect(response.fields[.init("X-Said")!] == "yes")
        #expect(!response.isLost)
        #expect(origin.asked == ["POST /f", "PATCH /u/1", "HEAD /u/1"])
    }

    @Test("a success with less than everything is not one")
    func less() async throws {
        let bytes = pattern(300_000)
        let origin = try UploadOrigin { request in
            request.number == 1 ? .response("200 OK", ["Upload-Offset: 7"]) : .serve
        }
        let (result, _) = await upload(.bytes(bytes), to: origin.base + "/f", quickOptions())
        #expect(try result.get().content == Array("taken".utf8))
        #expect(origin.taken == [bytes])
    }

    @Test(
        "a plain web server that accepts an empty or partial creation does not have the upload",
        arguments: [
            ("204 No Content", []), ("201 Created", ["Location: /made/1"]), ("200 OK", []),
            ("202 Accepted", ["Upload-Complete: ?1"]),
        ]
    )
    func plainServer(status: String, fields: [String]) async throws {
        let bytes = pattern(300_000)
        let origin = try UploadOrigin { _ in .response(status, fields) }
        for (body, creation) in [
            (Upload.Body.bytes(bytes), .careful), (.stream(pieces(bytes, of: 7_000)), .optimistic),
        ] as [(Upload.Body, Upload.Options.Creation)] {
            let result = await upload(body, to: origin.base + "/f", quickOptions(creation)).result
            #expect(result.error?.kind == .unsupported)
        }
    }

    // MARK: Downloads

    @Test("a redirected download saves nothing, and names the location", arguments: codes())
    func download(status: Int) async throws {
        let folder = try ScratchDirectory()
        for (fields, words) in [
            (Self.named, "to \(Self.place);"), (["Location: other"], "/a/other;"),
            ([], "no Location"),
        ] {
            let origin = try LoopbackOrigin { connection in
                while try connection.receiveRequest() != nil {
                    try connection.response("\(status) Moved", fields: fields, content: "<html>")
                }
            }
            var options = Download.Options()
            options.connection.usesProxies = false
            let path = folder.file("f")
            let download = Download(origin.base + "/a/f", to: .file(path), options: options)
            let error = await #expect(throws: TransferError.self) { try await download.run() }
            #expect(error?.kind == .redirected)
            #expect(error?.reason.contains(words) == true, "\(error?.reason ?? "")")
            #expect(!FileManager.default.fileExists(atPath: path))
        }
    }

    @Test(
        "a network login page does not replace a partial download"
    )
    func downloadPortal() async throws {
        let bytes = pattern(100_000)
        let origin = try LoopbackOrigin { connection in
            while let request = try connection.receiveRequest() {
                switch request.number {
                case 0:
                    try connection.send(
                        "HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 100000\r\n\r\n"
                    )
                    try connection.send(
                        String(decoding: [UInt8](repeating: 97, count: 1_000), as: UTF8.self)
                    )
                    return
                default:
                    try connection.response(
                        "200 OK",
                        fields: ["Content-Type: text/html"],
                        content: "<html>"
                    )
                }
            }
        }
        let folder = try ScratchDirectory()
        let path = folder.file("f")
        var options = Download.Options()
        options.connection.usesProxies = false
        options.connection.firstPause = .milliseconds(5)
        let download = Download(origin.base + "/f", to: .file(path), options: options)
        let error = await #expect(throws: TransferError.self) { try await download.run() }
        #expect(error?.kind == .refused)
        #expect(error?.reason.contains("neither an ETag nor a Last-Modified") == true)
        #expect(!FileManager.default.fileExists(atPath: path))
        #expect(try Data(contentsOf: URL(filePath: path + ".part")).count == 1_000)
        #expect(download.token?.offset == 1_000)
        withExtendedLifetime(bytes) {}
    }
}
