// The tests' WebDriver commands, sent as JSON over HTTP (Chromium, WebKit) or by MarionetteDriver.swift (Firefox).

import Foundation
import SpoolgateTestSupport

enum BrowserCommand {
    case navigate, refresh, back, newWindow, switchToWindow, switchToFrame, execute, findElement,
        actions
    case setTimeouts, setWindowRect, screenshot
    /// The element's identifier.
    case click(String)
    /// The element's identifier.
    case sendKeys(String)
    /// The path of a driver's extension.
    case vendor(String)

    /// The method, and the path below the session's.
    var http: (method: String, path: String) {
        switch self {
        case .navigate: ("POST", "/url")
        case .refresh: ("POST", "/refresh")
        case .back: ("POST", "/back")
        case .newWindow: ("POST", "/window/new")
        case .switchToWindow: ("POST", "/window")
        case .switchToFrame: ("POST", "/frame")
        case .execute: ("POST", "/execute/sync")
        case .findElement: ("POST", "/element")
        case .actions: ("POST", "/actions")
        case .setTimeouts: ("POST", "/timeouts")
        case .setWindowRect: ("POST", "/window/rect")
        case .screenshot: ("GET", "/screenshot")
        case .click(let element): ("POST", "/element/\(element)/click")
        case .sendKeys(let element): ("POST", "/element/\(element)/value")
        case .vendor(let path): ("POST", path)
        }
    }

    /// Marionette's name, and the parameter that WebDriver has in the path.
    var marionette: (name: String, parameters: [String: Any]) {
        switch self {
        case .navigate: ("WebDriver:Navigate", [:])
        case .refresh: ("WebDriver:Refresh", [:])
        case .back: ("WebDriver:Back", [:])
        case .newWindow: ("WebDriver:NewWindow", [:])
        case .switchToWindow: ("WebDriver:SwitchToWindow", [:])
        case .switchToFrame: ("WebDriver:SwitchToFrame", [:])
        case .execute: ("WebDriver:ExecuteScript", [:])
        case .findElement: ("WebDriver:FindElement", [:])
        case .actions: ("WebDriver:PerformActions", [:])
        case .setTimeouts: ("WebDriver:SetTimeouts", [:])
        case .setWindowRect: ("WebDriver:SetWindowRect", [:])
        case .screenshot: ("WebDriver:TakeScreenshot", ["full": false])
        case .click(let element): ("WebDriver:ElementClick", ["id": element])
        case .sendKeys(let element): ("WebDriver:ElementSendKeys", ["id": element])
        case .vendor(let name): (name, [:])
        }
    }
}

protocol BrowserDriver: AnyObject {
    /// Returns a command's value, or throws the browser's error.
    func perform(_ command: BrowserCommand, _ body: [String: Any]) throws -> Any

    /// Ends the session if the driver responds; processes may outlive it.
    func end()
}

/// A driver that is a program with an HTTP port.
final class HTTPDriver: BrowserDriver {
    private let port: Int
    private let process: Daemon
    private var session = ""

    /// Starts `program` with `--port=N` and opens a session.
    init(_ program: String, capabilities: [String: Any], environment: [String: String], log: URL)
        throws
    {
        port = try FreePort.take(1)[0]
        process = try Daemon(program, ["--port=\(port)"], log: log, environment: environment)
        let port = port
        try eventually("\(program) listens", seconds: 60) { (try? WireClient(port: port)) != nil }
        let made = try call("POST", "/session", ["capabilities": ["alwaysMatch": capabilities]])
        session = (made as? [String: Any])?["sessionId"] as? String ?? ""
    }

    func perform(_ command: BrowserCommand, _ body: [String: Any]) throws -> Any {
        let (method, path) = command.http
        return try call(method, "/session/\(session)\(path)", method == "GET" ? nil : body)
    }

    func end() {
        if !session.isEmpty { _ = try? call("DELETE", "/session/\(session)") }
        // Foundation starts programs with most signals blocked, and drivers do not unblock them.
        process.signal(SIGKILL)
        _ = process.wait()
    }

    private func call(_ method: String, _ path: String, _ body: [String: Any]? = nil) throws -> Any
    {
        let client = try WireClient(to: .port(UInt16(port)), patience: 300)
        let content = try body.map { try JSONSerialization.data(withJSONObject: $0) }
        let response = try client.ask(
            method,
            path,
            ["Content-Type: application/json; charset=utf-8"],
            content: content
        )
        let object = try JSONSerialization.jsonObject(with: response.content) as? [String: Any]
        guard response.status == 200, let value = object?["value"] else {
            throw WireClient.Broken(description: "\(method) \(path): \(response.text.prefix(500))")
        }
        return value
    }
}
