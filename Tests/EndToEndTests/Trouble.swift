// Upstreams that mishandle one request. Exactly-once delivery is checked against the requests they receive.

import Foundation
import SpoolgateTestSupport

enum Trouble: String, CaseIterable {
    /// Reads nothing and never responds.
    case stallsUnread
    /// Reads the whole request and never responds.
    case stalls
    /// Resets the connection within the content.
    case resets
    /// Reads the whole request and closes.
    case closes
    /// Responds with 413 before the content, and closes.
    case answersEarly
    case interims
    /// Responds with 503 once.
    case busy
    /// A response larger than is stored.
    case huge
    /// A response shorter than its length.
    case cutsAnswer
    /// A response longer than its length.
    case overlongAnswer

    /// Short only if they must expire.
    var timeouts: String {
        let seconds = self == .stalls || self == .stallsUnread ? 1 : 60
        return "timeouts: {connect: 60s, stall: \(seconds)s, response: \(seconds)s}"
    }

    enum End {
        case responded(Int)
        /// A response that asks for another attempt.
        case deferred(Int)
        /// No complete response.
        case unknown
    }

    var end: End {
        switch self {
        case .stallsUnread, .stalls, .resets, .closes, .cutsAnswer: .unknown
        case .answersEarly: .responded(413)
        case .interims, .huge, .overlongAnswer: .responded(201)
        case .busy: .deferred(503)
        }
    }
}

extension LoopbackOrigin {
    static let hugeSize = 2 << 20

    /// Responds to all other requests with 201.
    convenience init(_ trouble: Trouble) throws {
        try self.init { connection in
            while let request = try connection.receiveHead() {
                try connection.serve(request, request.number == 0 ? trouble : nil)
            }
        }
    }
}

extension OriginConnection {
    fileprivate func serve(_ head: LoopbackOrigin.Request, _ trouble: Trouble?) throws {
        var request = head
        let length = head.values("Content-Length").first.flatMap { Int($0) } ?? 0
        if trouble == .stallsUnread { return waitWithoutReading() }
        if trouble == .answersEarly {
            try response("413 Content Too Large", fields: ["Connection: close"], content: "no")
            waitForEnd()
            throw LoopbackOrigin.Ended()
        }
        try receiveContent(of: &request, keptContent: 0) { count in
            if trouble == .resets, count > length / 2 {
                reset()
                throw LoopbackOrigin.Ended()
            }
        }
        switch trouble {
        case .stalls: waitForEnd()
        case .closes: throw LoopbackOrigin.Ended()
        case .interims:
            try send("HTTP/1.1 100 Continue\r\n\r\n")
            for _ in 0..<3 { try send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n") }
            try response("201 Created", content: "stored")
        case .busy:
            try response("503 Service Unavailable", fields: ["Retry-After: 1"], content: "later")
        case .huge:
            let content = String(repeating: "x", count: LoopbackOrigin.hugeSize)
            try response("201 Created", content: content)
        case .cutsAnswer:
            try send("HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\nshort")
            throw LoopbackOrigin.Ended()
        case .overlongAnswer:
            try send("HTTP/1.1 201 Created\r\nContent-Length: 6\r\n\r\nstored and more")
            throw LoopbackOrigin.Ended()
        case .stallsUnread, .resets, .answersEarly, nil:
            try response("201 Created", content: "stored")
        }
    }
}
