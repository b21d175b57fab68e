// An application, one unreachable at first, the authorizer and the receiver of events, on unix sockets.

import Foundation
import SpoolgatePosix
import SpoolgateTestSupport

final class UpgradeUpstreams {
    enum Reply: Sendable {
        /// 201 with some content.
        case take
        /// 201 with this many bytes of content.
        case takeSaying(Int)
        case refuse(String)
        /// Closes the connection without a response.
        case lose
        /// Never responds.
        case hold
    }

    struct Event: Equatable {
        var delivery: String
        var text: String
    }

    private let folder: ScratchDirectory
    private let replies = Monitor<[String: Reply]>([:])
    private let application: LoopbackOrigin
    private let authorizer: LoopbackOrigin
    private var later: LoopbackOrigin?
    private var receiver: LoopbackOrigin?

    /// The others are unreachable.
    init() throws {
        folder = try ScratchDirectory()
        let replies = replies
        application = try LoopbackOrigin(socketPath: folder.file("application")) {
            try Self.serve($0, replies)
        }
        // It accepts any request with a user's name.
        authorizer = try LoopbackOrigin(socketPath: folder.file("authorizer")) { connection in
            while let request = try connection.receiveRequest() {
                let user = request.values("X-User").first
                try connection.response(
                    user == nil ? "401 Unauthorized" : "200 OK",
                    fields: user.map { ["Spoolgate-Owner: \($0)", "Spoolgate-Max-Size: 5000"] }
                        ?? []
                )
            }
        }
        try FileManager.default.createDirectory(
            atPath: dropDirectory,
            withIntermediateDirectories: true
        )
    }

    var dropDirectory: String { folder.file("dropped") }

    func url(_ name: String) -> String { "unix:\(folder.path)/\(name)" }

    func reply(to name: String, _ reply: Reply) { replies.update { $0[name] = reply } }

    func takeAll() { replies.update { $0 = [:] } }

    /// Does nothing if it already runs.
    func startLater() throws {
        guard later == nil else { return }
        let replies = replies
        later = try LoopbackOrigin(socketPath: folder.file("later")) {
            try Self.serve($0, replies)
        }
    }

    func startReceiver() throws {
        guard receiver == nil else { return }
        receiver = try LoopbackOrigin(socketPath: folder.file("receiver"), status: "204 No Content")
    }

    var events: [Event] {
        (receiver?.requests ?? []).map { request in
            Event(
                delivery: request.values("Spoolgate-Delivery").first ?? "",
                text: String(decoding: request.content, as: UTF8.self)
            )
        }
    }

    /// The complete requests so far.
    func requests(named name: String) -> [LoopbackOrigin.Request] {
        ([application] + (later.map { [$0] } ?? [])).flatMap(\.requests)
            .filter { $0.target.hasSuffix("/\(name)") }
    }

    private static func serve(
        _ connection: OriginConnection,
        _ replies: Monitor<[String: Reply]>
    ) throws {
        while let request = try connection.receiveRequest() {
            let name = request.target.split(separator: "/").last.map(String.init) ?? ""
            let from = ["X-Upstream: \(name)"]
            switch replies.update({ $0[name] }) ?? .take {
            case .take:
                try connection.response("201 Created", fields: from, content: "taken: \(name)\n")
            case .takeSaying(let count):
                let content = String(repeating: "x", count: count)
                try connection.response("201 Created", fields: from, content: content)
            case .refuse(let status):
                try connection.response(status, fields: from, content: "refused: \(name)\n")
            case .lose: return
            case .hold: return connection.waitForEnd()
            }
        }
    }
}
