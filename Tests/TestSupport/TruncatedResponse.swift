// Responses that an upstream never completes.

/// A response that is invalid, or whose connection ends too early.
package struct TruncatedResponse: Sendable, CustomStringConvertible {
    package let description: String
    /// The bytes that the upstream sends before it closes the connection.
    package let text: String
    /// Whether a part of the response reaches the client, which otherwise receives the gateway's 502.
    package let isBegun: Bool

    private init(_ description: String, _ lines: [String], _ content: String, isBegun: Bool) {
        self.description = description
        text = (["HTTP/1.1 200 OK"] + lines).joined(separator: "\r\n") + "\r\n\r\n" + content
        self.isBegun = isBegun
    }

    /// Every kind of framing, without content, with little and with much.
    package static let all: [TruncatedResponse] = [
        .init("no content of a known length", ["Content-Length: 5"], "", isBegun: false),
        .init("a part of a known length", ["Content-Length: 5"], "hel", isBegun: false),
        .init("a large part of a known length", ["Content-Length: 100000"], large, isBegun: true),
        .init("no chunk", [chunked], "", isBegun: false),
        .init("no size of a chunk", [chunked], "5", isBegun: false),
        .init("an invalid chunk", [chunked], "xyz\r\nhello\r\n", isBegun: false),
        .init("a chunk", [chunked], "5\r\nhello\r\n", isBegun: true),
        .init("a part of a chunk", [chunked], "5\r\nhel", isBegun: true),
        .init("an invalid second chunk", [chunked], "5\r\nhello\r\nxyz\r\n", isBegun: true),
        .init("no last chunk", [chunked], "c350\r\n\(large)\r\n", isBegun: true),
        .init("a false gzip", [gzip], "5\r\nhello\r\n0\r\n\r\n", isBegun: false),
    ]

    private static let chunked = "Transfer-Encoding: chunked"
    private static let gzip = "Transfer-Encoding: gzip, chunked"
    private static let large = String(repeating: "x", count: 50_000)
}

extension LoopbackOrigin {
    /// Sends the response in `all` whose index is the request's query, or else a complete page, and keeps no connection.
    package static func truncating() throws -> LoopbackOrigin {
        try LoopbackOrigin { connection in
            guard let request = try connection.receiveRequest() else { return }
            let query = request.target.split(separator: "?").dropFirst().first
            guard let index = query.flatMap({ Int($0) }) else {
                return try connection.response(
                    "200 OK",
                    fields: ["Content-Type: text/html", "Connection: close"],
                    content: "<title>whole</title>",
                    hasContent: request.method != "HEAD"
                )
            }
            try connection.send(TruncatedResponse.all[index].text)
        }
    }
}
