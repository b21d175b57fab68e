// A client as URLSession is one: it sends everything at once and waits for nothing, remembers the
// Location that a 104 tells, and after a cut asks there for the offset and appends the rest. The
// app's own fields go with every request.
//
// It is cut exactly once, retries nothing, and believes what it is told.

import Foundation
import TestSupport

/// One upload by such a client.
struct OptimisticClient {
    /// Its interop version.
    let version: Int
    let method: String
    let content: Data

    /// What the client heard on its way.
    struct Course {
        /// The first response to the creation.
        var interim: WireClient.Answer
        /// The response to the offset retrieval.
        var retrieval: WireClient.Answer
        /// Where it went on.
        var offset: Int
        /// The final response, to the append.
        var final: WireClient.Answer
    }

    /// Uploads; the connection breaks when `isEnough`.
    func upload(
        to target: String,
        by carrier: any Carrier,
        cutWhen isEnough: () throws -> Bool
    ) throws -> Course {
        let interim = try carrier.cut(
            method,
            target,
            own("video/mp4") + [isComplete],
            content: content,
            when: isEnough
        )
        guard let location = interim["location"] else {
            throw WireClient.Broken(description: "no Location: \(interim)")
        }
        let empty = version >= 6 ? ["Content-Length: 0"] : []
        let retrieval = try carrier.ask("HEAD", location, own("video/mp4") + empty, content: nil)
        guard let offset = retrieval["upload-offset"].flatMap({ Int($0) }) else {
            throw WireClient.Broken(description: "no offset: \(retrieval)")
        }
        let type = version >= 6 ? "application/partial-upload" : "video/mp4"
        let final = try carrier.ask(
            "PATCH",
            location,
            own(type) + [isComplete, "Upload-Offset: \(offset)"],
            content: content.suffix(from: content.startIndex + offset)
        )
        return Course(interim: interim, retrieval: retrieval, offset: offset, final: final)
    }

    /// The completeness field of a message that is all, or the rest, of the upload.
    var isComplete: String { version == 3 ? "Upload-Incomplete: ?0" : "Upload-Complete: ?1" }

    private func own(_ type: String) -> [String] {
        ["Upload-Draft-Interop-Version: \(version)", "Content-Type: \(type)", "X-App: photos"]
    }
}

/// How a client's requests travel.
protocol Carrier {
    /// Sends a request, breaks the connection when `isEnough`; the first response until then.
    func cut(
        _ method: String,
        _ target: String,
        _ fields: [String],
        content: Data,
        when isEnough: () throws -> Bool
    ) throws -> WireClient.Answer

    /// Sends a request; its final response.
    func ask(
        _ method: String,
        _ target: String,
        _ fields: [String],
        content: Data?
    ) throws -> WireClient.Answer
}

/// HTTP/1.1 without TLS.
struct WireCarrier: Carrier {
    let port: Int

    func cut(
        _ method: String,
        _ target: String,
        _ fields: [String],
        content: Data,
        when isEnough: () throws -> Bool
    ) throws -> WireClient.Answer {
        let client = try WireClient(port: port)
        client.sendHead(method, target, fields + ["Content-Length: \(content.count)"])
        client.send(content.prefix(content.count / 3))
        let answer = try client.readAny()
        try eventually("content has arrived", isEnough)
        client.cut(reset: true)
        return answer
    }

    func ask(
        _ method: String,
        _ target: String,
        _ fields: [String],
        content: Data?
    ) throws -> WireClient.Answer {
        let path = String(target.drop(upTo: "/files/"))
        return try WireClient(port: port).ask(method, path, fields, content: content)
    }
}

/// The curl program: HTTP/2 over TLS, or HTTP/2 alone.
struct CurlCarrier: Carrier {
    /// Where targets without an origin are.
    let origin: String
    /// For its files.
    let directory: URL
    var protocolOption = "--http2"

    func cut(
        _ method: String,
        _ target: String,
        _ fields: [String],
        content: Data,
        when isEnough: () throws -> Bool
    ) throws -> WireClient.Answer {
        let (arguments, head) = try prepare(method, target, fields, content: content)
        // So slow that it is still sending when it is killed.
        let curl = try Daemon(
            Command.find("curl") ?? "curl",
            ["--limit-rate", "8M"] + arguments,
            log: directory.appending(path: "curl.log")
        )
        let answer: WireClient.Answer = try eventually("a response over HTTP/2") {
            try responses(head).first
        }
        try eventually("content has arrived", isEnough)
        curl.signal(SIGKILL)
        guard curl.wait() == -SIGKILL else {
            throw WireClient.Broken(description: "curl had ended before it was cut")
        }
        return answer
    }

    func ask(
        _ method: String,
        _ target: String,
        _ fields: [String],
        content: Data?
    ) throws -> WireClient.Answer {
        let (arguments, head) = try prepare(method, target, fields, content: content)
        let curl = try Command(Command.find("curl") ?? "curl", arguments)
        guard curl.status == 0, let answer = try responses(head).last else {
            throw WireClient.Broken(description: "curl ended with \(curl.status): \(curl.errors)")
        }
        return answer
    }

    private func prepare(
        _ method: String,
        _ target: String,
        _ fields: [String],
        content: Data?
    ) throws -> (arguments: [String], head: URL) {
        let name = UUID().uuidString
        let head = directory.appending(path: "\(name).head")
        var arguments = ["-k", "-sS", "--max-time", "120", protocolOption, "-D", head.path()]
        if let content {
            let file = directory.appending(path: "\(name).content")
            try content.write(to: file)
            arguments += ["-X", method, "-T", file.path()]
        } else {
            arguments += method == "HEAD" ? ["-I"] : ["-X", method]
        }
        for field in fields { arguments += ["-H", field] }
        return (arguments + [target.hasPrefix("http") ? target : origin + target], head)
    }

    /// The heads of responses that curl has written down so far.
    func responses(_ head: URL) throws -> [WireClient.Answer] {
        guard FileManager.default.fileExists(atPath: head.path()) else { return [] }
        return try String(contentsOf: head, encoding: .utf8)
            .components(separatedBy: "\r\n\r\n")
            .dropLast()
            .map { try WireClient.Answer(head: $0) }
    }
}
