// The upstream of a sweep: it answers as the request asks it to.
//
// `X-Upload` names the upload, `X-Answer` how it is answered.

import Foundation
import SpoolgatePosix
import SpoolgateTestSupport

/// An upstream that counts.
final class Origin: Sendable {
    /// How an upload is answered.
    enum Answer: String, Sendable {
        /// At once.
        case short
        /// At once, with more content than is stored.
        case long
        /// The first time the connection ends without an answer.
        case silent
        /// The first time the connection ends without an answer, after a heartbeat as below.
        case lateSilent
        /// The first time with an error.
        case refusing
        /// The first time with 503, as what is in front of an application.
        case unavailable
        /// The first time with 401.
        case unauthorized
        /// With a redirect to another target, and there at once.
        case redirecting
        /// After the client has heard a heartbeat, or cannot hear one any more.
        case late
    }

    private let isOpen: Monitor<Bool>
    private let server: LoopbackOrigin
    private let path: String

    /// Listens on a socket below `directory`.
    init(directory: String) throws {
        path = "\(directory)/origin.sock"
        let isOpen = Monitor(false)
        self.isOpen = isOpen
        server = try LoopbackOrigin(socketPath: path) { connection in
            while let request = try connection.receiveRequest() {
                let number = Self.number(of: request)
                let isFirst = connection.requests.count { Self.number(of: $0) == number } == 1
                let answer = request.values("X-Answer").first.flatMap { Answer(rawValue: $0) }
                if answer == .late || answer == .lateSilent {
                    _ = isOpen.wait(until: .after(.seconds(60))) { $0 ? true : nil }
                }
                switch answer {
                case .silent where isFirst, .lateSilent where isFirst: return
                case .refusing where isFirst:
                    try connection.answer("422 Unprocessable Content", content: "no")
                case .unavailable where isFirst: try connection.answer("503 Service Unavailable")
                case .unauthorized where isFirst: try connection.answer("401 Unauthorized")
                case .redirecting where request.target == "/files":
                    try connection.answer(
                        "307 Temporary Redirect",
                        fields: ["Location: \(Self.otherTarget)"]
                    )
                case .long: try connection.answer("200 OK", content: Self.text(number, .long))
                case .silent, .lateSilent, .late, .refusing, .unavailable, .unauthorized,
                    .redirecting,
                    .short, nil:
                    try connection.answer("200 OK", content: Self.text(number, .short))
                }
            }
        }
    }

    /// How it is reached.
    var target: String { path }

    /// What it answers to an upload.
    static func text(_ number: Int, _ answer: Answer) -> String {
        "got \(number)." + (answer == .long ? String(repeating: "x", count: 2000) : "")
    }

    private static let otherTarget = "/files/other"

    /// The contents that came for an upload, whole, and were not certainly left untaken.
    func got(_ number: Int) -> [[UInt8]] {
        let requests = server.requests.filter { Self.number(of: $0) == number }
        switch requests.first?.values("X-Answer").first.flatMap({ Answer(rawValue: $0) }) {
        case .unauthorized: return requests.dropFirst().map(\.content)
        case .redirecting: return requests.filter { $0.target == Self.otherTarget }.map(\.content)
        default: return requests.map(\.content)
        }
    }

    private static func number(of request: LoopbackOrigin.Request) -> Int {
        request.values("X-Upload").first.flatMap { Int($0) } ?? -1
    }

    /// Late answers may come.
    func open() { isOpen.update { $0 = true } }

    /// Can be reached or not; a connection that is open stays.
    func setReachable(_ isReachable: Bool) {
        let away = "\(path).away"
        _ = isReachable ? rename(away, path) : rename(path, away)
    }

    func forget() {
        setReachable(true)
        server.forget { _ in true }
        isOpen.update { $0 = false }
    }
}
