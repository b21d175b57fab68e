// A service that the gateway calls: an upstream or an authorizer, whose behaviour changes over time.
//
// It listens on a unix socket, or has a host name; libcurl is real. The driver sets its manner for the next requests. Invariant: the ledger
// learns what an answer means before the first byte of the answer is sent.

import Foundation
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUpstream

/// How a service treats a request.
enum Manner: String, CaseIterable, Sendable {
    // Answers.
    case accept, acceptWithInterim, acceptAtLength, ownRedirect, refuse, unauthorized
    case loginElsewhere
    case busy, tooEarly, unavailable, requestTimeout, locked, noRoom, badGateway
    case follow, followElsewhere, misdirected
    // Failures.
    case noResponse, cutRequest, cutHead, cutContent
    /// Promises to keep the connection, and closes it when the next request arrives.
    case closesLater
    /// The same, and refuses without reading the content.
    case refuseUnread
    /// Answers once the driver opens the gate.
    case slow
}

final class Service: Sendable {
    private struct State {
        var manner = Manner.accept
        /// The number of requests that still get this manner.
        var left = 0
        var isOpen = false
        var waiting = 0
        /// Tokens that have expired.
        var expired: Set<String> = []
        var checksTokens = false
        var expectsUser = false
        /// The file with one line for each run of the inspection.
        var inspections: String?
    }

    let name: String
    let target: UpstreamTarget
    private let path: String
    /// nil for a unix socket.
    private let host: String?
    private let isAuthorizer: Bool
    private let ledger: Ledger
    private let machine: Machine
    private let state: Monitor<State>
    private let server: LoopbackOrigin

    init(
        _ name: String,
        on machine: Machine,
        _ ledger: Ledger,
        hasName: Bool,
        isAuthorizer: Bool = false
    ) throws {
        self.name = name
        self.ledger = ledger
        self.machine = machine
        self.isAuthorizer = isAuthorizer
        let path = "\(machine.root)/\(name).sock"
        self.path = path
        host = hasName ? name + TestNames.suffix : nil
        let state = Monitor(State())
        self.state = state
        let box = WeakService()
        server = try LoopbackOrigin(socketPath: hasName ? nil : path) { connection in
            while let service = box.service, try service.serve(connection) {}
        }
        target =
            host.map { [server] in .http(base: "http://\($0):\(server.port)") } ?? .unix(path: path)
        box.service = self
        setAway(false)
    }

    private final class WeakService: @unchecked Sendable {
        weak var service: Service?
    }

    func stop() {
        open()
        setAway(true)
        server.stop()
    }

    // MARK: The driver's side

    func behave(_ manner: Manner, times: Int) {
        state.update {
            $0.manner = manner
            $0.left = times
            $0.isOpen = false
        }
    }

    /// Lets slow answers be sent.
    func open() { state.update { $0.isOpen = true } }

    var isSlow: Bool { state.updateQuietly { $0.waiting > 0 && !$0.isOpen } }

    func expire(_ token: String) { state.update { _ = $0.expired.insert(token) } }

    /// The seconds that a busy service asks for.
    static let pause: Int64 = 600

    /// Whether the next request with this token is accepted at once.
    func isWell(for token: String) -> Bool {
        state.updateQuietly {
            $0.left == 0 && $0.waiting == 0 && !($0.checksTokens && $0.expired.contains(token))
        }
    }

    func checkTokens() { state.update { $0.checksTokens = true } }

    /// An authorizer sets the user.
    func expectUser() { state.update { $0.expectsUser = true } }

    /// An inspection precedes each delivery.
    func readInspections(_ path: String) { state.update { $0.inspections = path } }

    func passes(_ number: Int) -> Int? {
        state.updateQuietly { $0.inspections }.map { path in
            let lines = (try? String(contentsOfFile: path, encoding: .utf8)) ?? ""
            return lines.split(separator: "\n").count { $0 == "\(number) 0" }
        }
    }

    /// Open connections stay.
    func setAway(_ isAway: Bool) {
        if let host { return TestNames.set(host, isKnown: !isAway) }
        let away = "\(path).away"
        _ = isAway ? rename(path, away) : rename(away, path)
    }

    /// Nothing is wrong any more.
    func beWell() {
        state.update {
            $0.left = 0
            $0.isOpen = true
            $0.expired = []
        }
        setAway(false)
    }

    // MARK: The service's side

    /// Returns whether the connection is kept.
    private func serve(_ connection: OriginConnection) throws -> Bool {
        guard var request = try connection.receiveHead() else { return false }
        machine.note()
        let token = request.values("Authorization").first.map { String($0.dropFirst(7)) }
        let manner = manner(for: token)
        var reception = Reception(
            service: name,
            number: request.values("X-Upload").first.flatMap { Int($0) } ?? -1,
            token: token,
            user: state.updateQuietly { $0.expectsUser } ? request.values("X-User") : nil,
            content: [],
            isWhole: false,
            isQuestion: isAuthorizer
        )
        reception.isChecked = state.updateQuietly { $0.expectsUser }
        reception.key = request.values("Idempotency-Key").first
        reception.passes = passes(reception.number)
        reception.isBeforeDelivery = request.values("Spoolgate-Event") == ["delivery"]
        if manner == .cutRequest || manner == .refuseUnread {
            let length = request.values("Content-Length").first.flatMap { Int($0) } ?? 0
            if manner == .cutRequest {
                if length > 1 { reception.content = connection.receive(upTo: length / 2) }
                note(reception, manner, .lost)
                return false
            }
            note(reception, manner, .refusal(413))
            try connection.response("413 Content Too Large", content: "too large")
            _ = connection.discard(length)
            _ = connection.receive(upTo: 1)
            return false
        }
        do { try connection.receiveContent(of: &request) } catch {
            reception.content = request.content
            note(reception, manner, .lost)
            throw error
        }
        (reception.content, reception.isWhole) = (request.content, true)
        return try response(reception, request, manner, connection)
    }

    private func manner(for token: String?) -> Manner {
        state.update { state in
            if let token, state.checksTokens, state.expired.contains(token) {
                return .unauthorized
            }
            guard state.left > 0 else { return .accept }
            state.left -= 1
            return state.manner
        }
    }

    private func pause() {
        state.update { $0.waiting += 1 }
        machine.note()
        _ = state.wait(until: .after(.seconds(30))) { $0.isOpen ? true : nil }
        state.update { $0.waiting -= 1 }
    }

    /// Whether the next answer is slow.
    var pausesNext: Bool { state.updateQuietly { $0.left > 0 && $0.manner == .slow } }

    /// In place of an answer.
    func pauseIfSlow() {
        guard manner(for: nil) == .slow else { return }
        ledger.tell("  \(name): the daemon pauses after a drop")
        pause()
    }

    private func note(_ reception: Reception, _ manner: Manner, _ meaning: Meaning) {
        let moment = isAuthorizer ? "is asked about" : "receives"
        let part = reception.isWhole ? "" : "a part of "
        ledger.tell(
            "  \(name) \(moment) \(part)upload \(reception.number)"
                + (isAuthorizer ? "" : ", \(reception.content.count) bytes")
                + (reception.token.map { ", token \($0)" } ?? "") + ": \(manner.rawValue)"
        )
        ledger.received(reception, meaning: meaning)
        machine.note()
    }

    private func response(
        _ reception: Reception,
        _ request: LoopbackOrigin.Request,
        _ manner: Manner,
        _ connection: OriginConnection
    ) throws -> Bool {
        func tell(_ meaning: Meaning, _ status: String, _ fields: [String] = []) throws -> Bool {
            note(reception, manner, meaning)
            try connection.response(status, fields: fields, content: "from \(name)")
            return true
        }
        switch manner {
        case .accept: return try accept(reception, request, manner, connection)
        case .acceptWithInterim:
            try connection.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
            return try accept(reception, request, manner, connection)
        case .acceptAtLength:
            if isAuthorizer { return try accept(reception, request, manner, connection) }
            note(reception, manner, .success)
            try connection.send("HTTP/1.1 201 Created\r\nContent-Length: 2000\r\n\r\n")
            try connection.send([UInt8](repeating: 33, count: 1500))
            // Longer than libcurl waits before it reports progress.
            SpoolgatePosix.Thread.pause(.milliseconds(250))
            try connection.send([UInt8](repeating: 33, count: 500))
            return true
        case .closesLater:
            _ = try accept(reception, request, manner, connection)
            _ = connection.receive(upTo: 1)
            return false
        case .slow:
            pause()
            return try accept(reception, request, manner, connection)
        case .ownRedirect:
            if isAuthorizer { return try tell(.login, "302 Found", ["Location: /login"]) }
            return try tell(.success, "303 See Other", ["Location: /done"])
        case .refuse:
            let status = isAuthorizer ? 403 : 422
            return try tell(.refusal(status), "\(status) No")
        case .unauthorized:
            return try tell(.login, "401 Unauthorized", ["WWW-Authenticate: Bearer"])
        case .loginElsewhere:
            let place = ["Location: https://login.example/?next=x"]
            let isRepeatable =
                request.method == "PUT" && request.values("If-None-Match").isEmpty
                || reception.key != nil
            if isAuthorizer || isRepeatable {
                return try tell(.login, "302 Found", place)
            }
            return try tell(.elsewhere(302), "302 Found", place)
        case .busy: return try tell(.notProcessed(429), "429 Busy", ["Retry-After: \(Self.pause)"])
        case .tooEarly: return try tell(.notProcessed(425), "425 Too Early")
        case .unavailable: return try tell(.notNow(503), "503 Service Unavailable")
        case .requestTimeout: return try tell(.notNow(408), "408 Request Timeout")
        case .locked: return try tell(.notNow(423), "423 Locked")
        case .noRoom: return try tell(.notNow(507), "507 Insufficient Storage")
        case .badGateway: return try tell(.notNow(502), "502 Bad Gateway")
        case .follow:
            if isAuthorizer || request.target.hasPrefix("/moved") {
                return try accept(reception, request, manner, connection)
            }
            return try tell(.follow(307), "307 Temporary Redirect", ["Location: /moved"])
        case .followElsewhere:
            if isAuthorizer { return try tell(.login, "307 x", ["Location: http://b.example/"]) }
            return try tell(.follow(308), "308 x", ["Location: http://b.example/files"])
        case .misdirected:
            return try tell(
                isAuthorizer ? .refusal(421) : .notProcessed(421),
                "421 Misdirected Request"
            )
        case .noResponse, .cutRequest, .refuseUnread:
            note(reception, manner, .lost)
            return false
        case .cutHead:
            note(reception, manner, .lost)
            try connection.send("HTTP/1.1 200 OK\r\nContent-Le")
            return false
        case .cutContent:
            note(reception, manner, .lost)
            try connection.send("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nabcde")
            return false
        }
    }

    private func accept(
        _ reception: Reception,
        _ request: LoopbackOrigin.Request,
        _ manner: Manner,
        _ connection: OriginConnection
    ) throws -> Bool {
        note(reception, manner, .success)
        guard isAuthorizer else {
            try connection.response("201 Created", content: "from \(name)")
            return true
        }
        let owner = reception.token.map { String($0.prefix { $0 != "-" }) } ?? "nobody"
        try connection.response(
            "204 No Content",
            fields: ["Spoolgate-Owner: \(owner)", "Spoolgate-Set-X-User: \(owner)"]
        )
        return true
    }
}
