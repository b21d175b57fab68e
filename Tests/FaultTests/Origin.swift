// The upstream of the sweep. `X-Upload` names the upload; `X-Answer` selects the response.

import Foundation
import SpoolgatePosix
import SpoolgateTestSupport

final class Origin: Sendable {
    enum Answer: String, Sendable {
        case short
        /// More content than is stored.
        case long
        /// The first connection ends without a response.
        case silent
        /// The same, after a heartbeat as with `late`.
        case lateSilent
        /// 422 the first time.
        case refusing
        /// 503 the first time, as from a proxy.
        case unavailable
        /// 401 the first time.
        case unauthorized
        /// A redirect to a target that responds.
        case redirecting
        /// After the client received a heartbeat or no longer can.
        case late
    }

    private let isOpen: Monitor<Bool>
    private let server: LoopbackOrigin
    private let path: String

    init(directory: String) throws {
        path = "\(directory)/origin.sock"
        let isOpen = Monitor(false)
        self.isOpen = isOpen
        server = try LoopbackOrigin(socketPath: path) { connection in
            while let request = try connection.receiveRequest() {
                let number = Self.number(of: request)
                let isFirst = connection.requests.count { Self.number(of: $0) == number } == 1
                let response = request.values("X-Answer").first.flatMap { Answer(rawValue: $0) }
                if response == .late || response == .lateSilent {
                    _ = isOpen.wait(until: .after(.seconds(60))) { $0 ? true : nil }
                }
                switch response {
                case .silent where isFirst, .lateSilent where isFirst: return
                case .refusing where isFirst:
                    try connection.response("422 Unprocessable Content", content: "no")
                case .unavailable where isFirst: try connection.response("503 Service Unavailable")
                case .unauthorized where isFirst: try connection.response("401 Unauthorized")
                case .redirecting where request.target == "/files":
                    try connection.response(
                        "307 Temporary Redirect",
                        fields: ["Location: \(Self.otherTarget)"]
                    )
                case .long: try connection.response("200 OK", content: Self.text(number, .long))
                case .silent, .lateSilent, .late, .refusing, .unavailable, .unauthorized,
                    .redirecting,
                    .short, nil:
                    try connection.response("200 OK", content: Self.text(number, .short))
                }
            }
        }
    }

    var target: String { path }

    static func text(_ number: Int, _ response: Answer) -> String {
        "got \(number)." + (response == .long ? String(repeating: "x", count: 2000) : "")
    }

    private static let otherTarget = "/files/other"

    /// Without contents certainly not processed.
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

    /// Lets late responses be sent.
    func open() { isOpen.update { $0 = true } }

    /// Open connections stay.
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
