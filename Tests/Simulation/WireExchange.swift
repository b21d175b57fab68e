// One request that a client sends to nginx over a connection of its own.
//
// A thread sends the content and reads the responses; the driver sends the rest of a paused one. It is over once the
// client has done with it, nginx has logged it, and the gateway has served it if nginx passed it on.

import Foundation
import HTTPTypes
import SpoolgateExchange
import SpoolgatePosix
import SpoolgateRequests
import SpoolgateTestSupport
import SpoolgateUploadProtocol

final class WireExchange: Conversation {
    enum Serving { case notBegun, begun, ended }

    private struct State {
        var heard = WebExchange.Heard()
        var wire: WireClient?
        var hasLeft = false
        var isClientDone = false
        var isPausing = false
        /// The lengths of the content that the client has sent, and that the gateway has received.
        var sent = 0
        var received = 0
        var isWaiting = false
        var serving = Serving.notBegun
        var isLogged = false
        var isPassed = false
        /// The file into which nginx writes the content, and its size before.
        var loan: (file: Int32, start: Int64)?

        var hasArrived: Bool {
            let written = loan.map { Int(Machine.size(of: $0.file) - $0.start) } ?? 0
            return serving == .ended || serving == .begun && received + written >= sent
        }

        var isOver: Bool {
            guard isClientDone, isLogged else { return false }
            return serving == .ended || serving == .notBegun && !isPassed
        }
    }

    let number: Int
    private let front: Front
    private let request: RequestHead
    private let context: ExchangeContext
    private let parts: [[UInt8]]
    private let end: WebExchange.End
    private let machine: Machine
    private let process: Int
    private let state = Monitor(State())

    init(
        _ request: RequestHead,
        _ context: ExchangeContext,
        _ content: [UInt8],
        _ end: WebExchange.End,
        _ front: Front,
        _ machine: Machine,
        _ process: Int
    ) {
        number = front.web.nextNumber()
        (self.request, self.context, self.end) = (request, context, end)
        (self.front, self.machine, self.process) = (front, machine, process)
        let middle = content.count * 2 / 3
        parts = [Array(content[..<middle]), Array(content[middle...])].filter { !$0.isEmpty }
    }

    // MARK: The driver's side

    var heard: WebExchange.Heard { state.updateQuietly { $0.heard } }
    var isPeerGone: Bool { machine.isDead(process) || state.updateQuietly { $0.hasLeft } }

    var isOver: Bool { state.updateQuietly { $0.isOver } }

    var isStuck: Bool {
        state.updateQuietly {
            $0.isPausing && $0.isWaiting && $0.hasArrived && !$0.isClientDone
        }
    }

    func start(with gateway: Gateway) {
        let started: Void? = try? SpoolgatePosix.Thread.start(name: "client") {
            self.run()
            self.change {
                $0.wire = nil
                $0.isClientDone = true
            }
        }
        if started == nil { change { ($0.isClientDone, $0.isLogged) = (true, true) } }
    }

    func hangUp() {
        let wire = state.update { state in
            state.hasLeft = true
            return state.wire
        }
        wire?.cut()
        machine.note()
    }

    func goOn(with rest: [UInt8], _ end: WebExchange.End) {
        guard end == .proper else { return hangUp() }
        let wire = state.update { state in
            state.isPausing = false
            return state.wire
        }
        guard let wire else { return }
        send(rest, wire)
        sendEnd(wire)
        machine.note()
    }

    // MARK: The client's thread

    private func run() {
        // Clients' addresses are in 192.0.2.0/24.
        let address = context.remoteAddress?.replacing("192.0.2.", with: "127.0.3.")
        let port = SocketAddress.port(UInt16(front.web.port))
        guard let wire = try? WireClient(to: port, from: address, patience: 40) else {
            return change {
                $0.heard.faults.append("nginx cannot be reached")
                $0.isLogged = true
            }
        }
        // nginx does not log a request without a head.
        let hasLeft = state.update { state in
            state.wire = wire
            return state.hasLeft
        }
        guard !hasLeft, wire.send(head) else { return change { $0.isLogged = true } }
        for part in parts { send(part, wire) }
        switch end {
        case .proper: sendEnd(wire)
        case .stuck: change { $0.isPausing = true }
        case .cut:
            // Content may reach the gateway before nginx learns of the end of its connection.
            if parts.joined().count.isMultiple(of: 2) {
                _ = state.wait(until: .after(.milliseconds(300))) { $0.hasArrived ? true : nil }
            }
            return hangUp()
        }
        hear(wire)
    }

    private var head: String {
        var lines = [
            "\(request.method.rawValue) \(path) HTTP/1.1", "Host: \(context.route ?? "default")",
            "X-Daemon: \(front.name)", "X-Call: \(number)",
        ]
        lines += request.fields.map { "\($0.name.rawName): \($0.value)" }
        if isChunked { lines.append("Transfer-Encoding: chunked") }
        if let length = request.contentLength.count { lines.append("Content-Length: \(length)") }
        return lines.joined(separator: "\r\n") + "\r\n\r\n"
    }

    private var isChunked: Bool {
        request.contentLength == .unknown && ![.head, .delete].contains(request.method)
    }

    /// The gateway names resources with their origin.
    private var path: String {
        guard request.target.hasPrefix("http://") else { return request.target }
        return "/" + request.target.split(separator: "/").dropFirst(2).joined(separator: "/")
    }

    private func send(_ part: [UInt8], _ wire: WireClient) {
        guard !part.isEmpty else { return }
        state.updateQuietly { $0.sent += part.count }
        if isChunked { wire.sendChunk(Data(part)) } else { wire.send(Data(part)) }
    }

    private func sendEnd(_ wire: WireClient) { if isChunked { wire.send("0\r\n\r\n") } }

    private func hear(_ wire: WireClient) {
        while let response = try? wire.readAny(head: true) {
            let head = Self.head(of: response)
            guard response.status >= 200 else {
                change { $0.heard.interims.append(head) }
                continue
            }
            guard response["From-Gateway"]?.first?.isNumber == true else {
                return change { $0.heard.faults.append("nginx answers \(response.status) itself") }
            }
            let hasContent = request.method != .head && ![204, 304].contains(response.status)
            let content = hasContent ? try? wire.readContent(of: response) : Data()
            return change {
                $0.heard.final = head
                $0.heard.content = content.map { Array($0) } ?? []
                $0.heard.isAborted = content == nil
            }
        }
    }

    private static func head(of response: WireClient.Answer) -> ResponseHead {
        var fields = HTTPFields()
        for (name, value) in response.fields {
            fields.append(HTTPField(name: .sim(name), value: value))
        }
        return ResponseHead(status: .init(code: response.status), fields: fields)
    }

    // MARK: nginx and the gateway's listener

    func noteLogged(isPassed: Bool) {
        change { ($0.isLogged, $0.isPassed) = (true, isPassed) }
    }

    func noteServed(_ serving: Serving) { change { $0.serving = serving } }

    func noteReceived(_ count: Int) { state.update { $0.received += count } }

    func noteLoan(_ file: Int32, from start: Int64) {
        let file = machine.lend(file, from: start)
        change { $0.loan = (file, start) }
    }

    func noteWaiting(_ isWaiting: Bool) { change { $0.isWaiting = isWaiting } }

    /// Wakes the driver, which may look at this conversation, so the monitor must be free then.
    private func change(_ body: (inout State) -> Void) {
        let (isOver, file) = state.update { state -> (Bool, Int32?) in
            body(&state)
            guard state.isOver else { return (false, nil) }
            // nginx has closed the file.
            defer { state.loan = nil }
            return (true, state.loan?.file)
        }
        if isOver { front.web.remove(number) }
        if let file { machine.endLoan(of: file) }
        machine.note()
    }
}
