// Two ways to send an optimistic client's requests: HTTP/1.1 byte by byte, or HTTP/2 by curl.

import Foundation
import SpoolgateTestSupport

protocol Carrier {
    /// Sends a request, breaks the connection when `isEnough`, and returns the first response before that.
    func cut(
        _ method: String,
        _ target: String,
        _ fields: [String],
        content: Data,
        when isEnough: () throws -> Bool
    ) throws -> WireClient.Answer

    func ask(
        _ method: String,
        _ target: String,
        _ fields: [String],
        content: Data?
    ) throws -> WireClient.Answer
}

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
        let response = try client.readAny()
        try eventually("content has arrived", isEnough)
        client.cut(reset: true)
        return response
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

struct CurlCarrier: Carrier {
    /// The origin of targets that have none.
    let origin: String
    let directory: URL
    var options: [String] = []

    func cut(
        _ method: String,
        _ target: String,
        _ fields: [String],
        content: Data,
        when isEnough: () throws -> Bool
    ) throws -> WireClient.Answer {
        let (arguments, head) = try prepare(method, target, fields, content: content)
        // The limit keeps curl sending until it is killed.
        let curl = try Daemon(
            Command.find("curl") ?? "curl",
            ["--limit-rate", "8M"] + arguments,
            log: directory.appending(path: "curl.log")
        )
        let response: WireClient.Answer = try eventually("a response over HTTP/2") {
            try responses(head).first
        }
        try eventually("content has arrived", isEnough)
        curl.signal(SIGKILL)
        guard curl.wait() == -SIGKILL else {
            throw WireClient.Broken(description: "curl exited before it was killed")
        }
        return response
    }

    func ask(
        _ method: String,
        _ target: String,
        _ fields: [String],
        content: Data?
    ) throws -> WireClient.Answer {
        let responses = try askAll(method, target, fields, content: content)
        guard let final = responses.last else {
            throw WireClient.Broken(description: "no response")
        }
        return final
    }

    /// Returns all responses, the final one last.
    func askAll(
        _ method: String,
        _ target: String,
        _ fields: [String],
        content: Data?
    ) throws -> [WireClient.Answer] {
        let (arguments, head) = try prepare(method, target, fields, content: content)
        let curl = try Command(Command.find("curl") ?? "curl", arguments)
        guard curl.status == 0 else {
            throw WireClient.Broken(description: "curl exited with \(curl.status): \(curl.errors)")
        }
        return try responses(head)
    }

    private func prepare(
        _ method: String,
        _ target: String,
        _ fields: [String],
        content: Data?
    ) throws -> (arguments: [String], head: URL) {
        let name = UUID().uuidString
        let head = directory.appending(path: "\(name).head")
        var arguments = ["-k", "-sS", "--max-time", "120", "--http2", "-D", head.path()] + options
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

    /// The header sections that curl has written so far.
    func responses(_ head: URL) throws -> [WireClient.Answer] {
        guard FileManager.default.fileExists(atPath: head.path()) else { return [] }
        return try String(contentsOf: head, encoding: .utf8)
            .components(separatedBy: "\r\n\r\n")
            .dropLast()
            .map { try WireClient.Answer(head: $0) }
    }
}
