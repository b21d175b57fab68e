// One request as a web server passes it on, and what its client hears.
//
// As over FastCGI, a small response of known length, and a head before its content, are collected: `withdraw` and `abort`
// discard them. A client hears nothing of a dead daemon.

import HTTPTypes
import SpoolgateExchange
import SpoolgatePosix
import SpoolgateRequests
import SpoolgateUploadProtocol

final class WebExchange: Exchange, Sendable {
    /// What follows the parts.
    enum End: Sendable { case proper, cut, stuck }

    struct Heard: Sendable {
        var interims: [ResponseHead] = []
        var final: ResponseHead?
        var content: [UInt8] = []
        var isAborted = false
        /// What no web server accepts.
        var faults: [String] = []
    }

    private struct State {
        var parts: [[UInt8]]
        var end: End
        var isReleased = false
        var isGone = false
        var isStuck = false
        var isOver = false
        var hasLength = false
        var heard = Heard()

        /// Whether the web server has received nothing of the final response.
        var isCollected: Bool {
            heard.content.isEmpty || hasLength && heard.content.count < 16_000
        }
    }

    let request: RequestHead
    let context: ExchangeContext
    let interrupt: @Sendable () -> Void
    nonisolated(unsafe) var beforeHead: ((inout ResponseHead) -> Void)?
    private let isDead: @Sendable () -> Bool
    private let onEvent: @Sendable () -> Void
    private let state: Monitor<State>

    init(
        _ request: RequestHead,
        _ context: ExchangeContext,
        content: [UInt8],
        end: End,
        isDead: @escaping @Sendable () -> Bool,
        onEvent: @escaping @Sendable () -> Void
    ) {
        // As the FastCGI listener does.
        var request = request
        request.fields.applyConnection()
        self.request = request
        self.context = context
        self.isDead = isDead
        self.onEvent = onEvent
        let middle = content.count * 2 / 3
        let parts = [Array(content[..<middle]), Array(content[middle...])].filter { !$0.isEmpty }
        let state = Monitor(State(parts: parts, end: end))
        self.state = state
        interrupt = { state.update { $0.isReleased = true } }
    }

    // MARK: The client's side

    var heard: Heard { state.updateQuietly { $0.heard } }
    var isOver: Bool { state.updateQuietly { $0.isOver } }
    var isStuck: Bool { state.updateQuietly { $0.isStuck && !$0.isOver } }

    /// Whether the client left before the exchange was over.
    var hasLeft: Bool { state.updateQuietly { $0.isGone } }

    func hangUp() {
        // It pauses no longer, and sends no more.
        state.update { ($0.isGone, $0.isStuck) = (true, false) }
        onEvent()
    }

    /// Ends the wait of a stuck client.
    func goOn(with rest: [UInt8], _ end: End) {
        state.update {
            if !rest.isEmpty { $0.parts.append(rest) }
            $0.end = end
            $0.isStuck = false
        }
        onEvent()
    }

    func noteEnd() {
        state.update { $0.isOver = true }
        onEvent()
    }

    // MARK: The web server's side

    var head: Result<RequestHead, Refusal> { .success(request) }
    var isPeerGone: Bool { isDead() || state.updateQuietly { $0.isGone } }

    func receive(into buffer: ContentBuffer) throws(ContentError) -> Bool {
        guard !isDead() else { throw .truncated }
        let free = buffer.free
        let step = state.update { state -> Result<[UInt8]?, ContentError>? in
            Self.take(&state, free)
        }
        switch step {
        case .success(let bytes?): return fill(buffer, bytes)
        case .success(nil): return false
        case .failure(let error): throw error
        case nil: break
        }
        state.update { $0.isStuck = !$0.isGone }
        onEvent()
        let later = state.wait(until: .after(.seconds(30))) { state in Self.take(&state, free) }
        switch later {
        case .success(let bytes?): return fill(buffer, bytes)
        case .success(nil): return false
        case .failure(let error): throw error
        case nil: throw .stalled
        }
    }

    private static func take(
        _ state: inout State,
        _ free: Int
    ) -> Result<[UInt8]?, ContentError>? {
        if state.isGone { return .failure(.truncated) }
        if let part = state.parts.first {
            let bytes = Array(part.prefix(free))
            if bytes.count == part.count {
                state.parts.removeFirst()
            } else {
                state.parts[0] = Array(part[bytes.count...])
            }
            return .success(bytes)
        }
        if state.isReleased, state.end != .proper { return .failure(.released) }
        switch state.end {
        case .proper: return .success(nil)
        case .cut:
            state.isGone = true
            return .failure(.truncated)
        case .stuck: return nil
        }
    }

    private func fill(_ buffer: ContentBuffer, _ bytes: [UInt8]) -> Bool {
        buffer.fill { free in
            free.copyBytes(from: bytes)
            return bytes.count
        }
        return true
    }

    func send(interim head: ResponseHead) -> Bool {
        guard !isPeerGone, context.interimStatuses.contains(head.status.code) else { return false }
        var head = head
        beforeHead?(&head)
        state.update { state in
            if state.heard.final != nil {
                state.heard.faults.append("an interim response after the final one")
            }
            state.heard.interims.append(head)
        }
        return true
    }

    func send(head: ResponseHead, contentLength: Int64?) throws(ClientGone) {
        var head = head
        beforeHead?(&head)
        guard !isPeerGone else { throw ClientGone() }
        state.update { state in
            if state.heard.final != nil { state.heard.faults.append("a second final response") }
            state.heard.final = head
            state.hasLength = contentLength != nil
        }
    }

    func send(content: RawSpan) throws(ClientGone) {
        guard !isPeerGone else { throw ClientGone() }
        guard request.method != .head else { return }
        state.update { state in
            content.withUnsafeBytes { state.heard.content.append(contentsOf: $0) }
        }
    }

    func withdraw() -> Bool {
        state.update { state in
            guard state.isCollected, !state.heard.isAborted else { return false }
            (state.heard.final, state.heard.content) = (nil, [])
            return true
        }
    }

    func abort() {
        state.update { state in
            state.heard.isAborted = true
            if state.isCollected { (state.heard.final, state.heard.content) = (nil, []) }
        }
    }
}
