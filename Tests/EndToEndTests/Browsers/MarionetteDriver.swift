// Firefox by Marionette, whose messages are JSON arrays preceded by their length. Debian has no geckodriver.

import Foundation
import SpoolgatePosix
import SpoolgateTestSupport

final class MarionetteDriver: BrowserDriver {
    private let process: Daemon
    private let socket: StreamSocket
    private var unread: [UInt8] = []
    private var count = 0

    /// Starts Firefox and opens a session; `preferences` are names and JavaScript values for `user.js`.
    init(
        in directory: URL,
        preferences: [String: String],
        environment: [String: String],
        acceptsAnyCertificate: Bool
    ) throws {
        let profile = directory.appending(path: "profile")
        try FileManager.default.createDirectory(at: profile, withIntermediateDirectories: true)
        // Port 0 makes Firefox choose a port and write it to its profile.
        let all = ["marionette.port": "0"].merging(preferences) { $1 }
        let lines = all.map { "user_pref(\"\($0.key)\", \($0.value));\n" }.joined()
        try Data(lines.utf8).write(to: profile.appending(path: "user.js"))
        let process = try Daemon(
            Command.find("firefox-esr") ?? "firefox-esr",
            [
                "--headless", "--marionette", "--remote-allow-system-access", "--no-remote",
                "--profile", profile.path(),
            ],
            log: directory.appending(path: "log"),
            environment: environment
        )
        self.process = process
        let number = profile.appending(path: "MarionetteActivePort")
        let port: UInt16 = try eventually("Firefox listens", seconds: 120) {
            if !process.process.isRunning { throw NeverHappened(description: "Firefox ended") }
            return (try? String(contentsOf: number, encoding: .utf8)).flatMap { UInt16($0) }
        }
        socket = try StreamSocket(connectedTo: .port(port), patience: 300)
        socket.sendAtOnce()
        _ = try receive()
        let made = try call("WebDriver:NewSession", ["acceptInsecureCerts": acceptsAnyCertificate])
        let capabilities = (made as? [String: Any])?["capabilities"] as? [String: Any]
        guard capabilities?["acceptInsecureCerts"] as? Bool == acceptsAnyCertificate else {
            throw WireClient.Broken(description: "Firefox ignores acceptInsecureCerts")
        }
    }

    deinit { socket.close() }

    func perform(_ command: BrowserCommand, _ body: [String: Any]) throws -> Any {
        let (name, parameters) = command.marionette
        return try call(name, body.merging(parameters) { $1 })
    }

    func end() {
        process.signal(SIGKILL)
        _ = process.wait()
    }

    /// Runs `body` with the browser's privileges instead of a page's.
    func asBrowser<T>(_ body: () throws -> T) throws -> T {
        _ = try call("Marionette:SetContext", ["value": "chrome"])
        defer { _ = try? call("Marionette:SetContext", ["value": "content"]) }
        return try body()
    }

    /// Returns a command's result: `{"value": …}` for some commands, the bare value for others.
    private func call(_ name: String, _ parameters: [String: Any]) throws -> Any {
        count += 1
        let message = try JSONSerialization.data(withJSONObject: [0, count, name, parameters])
        guard socket.send(Array("\(message.count):".utf8) + message) else {
            throw WireClient.Broken(description: "\(name): Firefox has ended")
        }
        guard let response = try receive() as? [Any], response.count == 4 else {
            throw WireClient.Broken(description: "\(name): invalid response")
        }
        if let error = response[2] as? [String: Any] {
            throw WireClient.Broken(description: "\(name): \(error["message"] ?? error)")
        }
        guard let object = response[3] as? [String: Any], object.count == 1 else {
            return response[3]
        }
        return object["value"] ?? object
    }

    private func receive() throws -> Any {
        while true {
            if let colon = unread.firstIndex(of: UInt8(ascii: ":")) {
                let length = Int(String(decoding: unread[..<colon], as: UTF8.self)) ?? 0
                let end = colon + 1 + length
                if unread.count >= end {
                    defer { unread.removeFirst(end) }
                    return try JSONSerialization.jsonObject(with: Data(unread[(colon + 1)..<end]))
                }
            }
            guard let bytes = socket.receive(), !bytes.isEmpty else {
                throw WireClient.Broken(description: "Firefox has ended")
            }
            unread += bytes
        }
    }
}
