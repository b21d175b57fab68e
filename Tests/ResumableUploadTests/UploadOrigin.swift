// A server of resumable uploads that reacts as the test orders. It implements the part that clients use, and shares no
// code with the library.

import Foundation
import SpoolgatePosix
import SpoolgateTestSupport

final class UploadOrigin: Sendable {
    enum Reaction: Sendable {
        case serve
        /// Sends this response after the content.
        case response(String, [String] = [], content: String = "")
        /// Keeps this many content bytes, then closes the connection.
        case cut(after: Int)
        /// Processes the request, then closes without a response.
        case loseAnswer
    }

    /// One upload, or an ordinary request's content.
    struct Stored: Sendable {
        var bytes: [UInt8] = []
        var isComplete = false
    }

    private struct State {
        var uploads: [String: Stored] = [:]
        var taken: [[UInt8]] = []
        var next = 1
    }

    private let state: Monitor<State>
    let origin: LoopbackOrigin
    var base: String { origin.base }
    /// The complete contents received, in order.
    var taken: [[UInt8]] { state.update { $0.taken } }
    /// As `METHOD /target`.
    var asked: [String] { origin.requests.map { "\($0.method) \($0.target)" } }
    /// The complete requests.
    var requests: [LoopbackOrigin.Request] { origin.requests }

    /// With `interim` it sends 104; below the offset `reporting`, it reports after each part of an append's content.
    init(
        interim: Bool = true,
        reporting: Int = 0,
        limit: String? = nil,
        react: @escaping @Sendable (LoopbackOrigin.Request) -> Reaction = { _ in .serve }
    ) throws {
        let state = Monitor(State())
        self.state = state
        origin = try LoopbackOrigin { connection in
            while let head = try connection.receiveHead() {
                try Self.serve(head, connection, state, interim, reporting, limit, react(head))
            }
        }
    }

    func forgetAll() { state.update { $0.uploads = [:] } }

    private static func serve(
        _ head: LoopbackOrigin.Request,
        _ connection: OriginConnection,
        _ state: Monitor<State>,
        _ interim: Bool,
        _ reporting: Int,
        _ limit: String?,
        _ reaction: Reaction
    ) throws {
        if case .response(let status, let fields, let content) = reaction {
            var request = head
            try connection.receiveContent(of: &request)
            return try connection.response(
                status,
                fields: fields,
                content: content,
                hasContent: head.method != "HEAD"
            )
        }
        let isResource = head.target.hasPrefix("/u/")
        guard !isResource || state.update({ $0.uploads[head.target] != nil }) else {
            var request = head
            try connection.receiveContent(of: &request)
            return try connection.response("404 Not Found")
        }
        let version = head.values("Upload-Draft-Interop-Version").first
        let marker =
            head.values("Upload-Complete").first
            ?? head.values("Upload-Incomplete").first.map { $0 == "?0" ? "?1" : "?0" }
        var name = head.target
        if !isResource, marker != nil {
            name = state.update { state in
                let name = "/u/\(state.next)"
                state.next += 1
                state.uploads[name] = Stored()
                return name
            }
            if interim, let version {
                try connection.send(
                    "HTTP/1.1 104 Upload Resumption Supported\r\nLocation: \(name)\r\n"
                        + "Upload-Draft-Interop-Version: \(version)\r\n\r\n"
                )
            }
        }
        let offset = state.update { $0.uploads[name]?.bytes.count ?? 0 }
        var lines = limit.map { ["Upload-Limit: \($0)"] } ?? []
        switch head.method {
        case "HEAD":
            var request = head
            try connection.receiveContent(of: &request)
            let isComplete = state.update { $0.uploads[name]?.isComplete ?? false }
            lines += ["Upload-Offset: \(offset)", "Upload-Complete: \(isComplete ? "?1" : "?0")"]
            return try connection.response("204 No Content", fields: lines, hasContent: false)
        case "DELETE":
            var request = head
            try connection.receiveContent(of: &request)
            state.update { $0.uploads[name] = nil }
            return try connection.response("204 No Content")
        default: break
        }
        if isResource, head.values("Upload-Offset").first != "\(offset)" {
            var request = head
            try connection.receiveContent(of: &request)
            lines += ["Upload-Offset: \(offset)", "Upload-Complete: ?0"]
            return try connection.response("409 Conflict", fields: lines)
        }
        var request = head
        do {
            try connection.receiveContent(of: &request) { count in
                if case .cut(let maximum) = reaction, count >= maximum {
                    throw LoopbackOrigin.Ended()
                }
                guard let version, isResource, offset + count < reporting else { return }
                try connection.send(
                    "HTTP/1.1 104 Upload Resumption Supported\r\nUpload-Offset: \(offset + count)\r\n"
                        + "Upload-Draft-Interop-Version: \(version)\r\n\r\n"
                )
            }
        } catch {
            let bytes = request.content
            if marker != nil { state.update { $0.uploads[name]?.bytes += bytes } }
            throw error
        }
        let bytes = request.content
        guard let marker else {
            state.update { $0.taken.append(bytes) }
            if case .loseAnswer = reaction { throw LoopbackOrigin.Ended() }
            return try connection.response("201 Created", content: "plain")
        }
        let end = state.update { state -> Int in
            state.uploads[name]?.bytes += bytes
            if marker == "?1", var upload = state.uploads[name] {
                if !upload.isComplete { state.taken.append(upload.bytes) }
                upload.isComplete = true
                state.uploads[name] = upload
            }
            return state.uploads[name]?.bytes.count ?? 0
        }
        if case .loseAnswer = reaction { throw LoopbackOrigin.Ended() }
        if case .cut = reaction { throw LoopbackOrigin.Ended() }
        lines += ["Upload-Offset: \(end)", "Upload-Complete: \(marker)"]
        if !isResource { lines.append("Location: \(name)") }
        try connection.response(
            marker == "?1" ? "201 Created" : isResource ? "204 No Content" : "201 Created",
            fields: lines,
            content: marker == "?1" ? "taken" : ""
        )
    }
}
