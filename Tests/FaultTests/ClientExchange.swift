// One request of a client as a web server passes it on. A client receives nothing from a crashed daemon.
//
// Invariant: a read ends as scripted, by `interrupt`, by `hangUp`, or at a deadline that only broken code reaches.

import HTTPTypes
@testable import SpoolgateExchange
import SpoolgatePosix
import SpoolgateRequests
import SpoolgateUploadProtocol

final class ClientExchange: Exchange, ContentLane, Sendable {
    enum End: Sendable {
        case proper
        case cut
        /// No more content arrives until the request is interrupted.
        case stuck
    }

    private struct State {
        var parts: [[UInt8]]
        var isReleased = false
        var isGone = false
        var isStuck = false
        var isEnded = false
        var heard: [ResponseHead] = []
        var content: [UInt8] = []
        var final: ResponseHead?
        var faults: [String] = []
    }

    let request: RequestHead
    let context: ExchangeContext
    let interrupt: @Sendable () -> Void
    nonisolated(unsafe) var beforeHead: ((inout ResponseHead) -> Void)?
    private let end: End
    private let isDead: @Sendable () -> Bool
    private let onInterim: @Sendable (ResponseHead) -> Void
    /// Called before each part of content.
    private let onTurn: @Sendable () -> Void
    /// nil if content goes through the gateway.
    private let front: WritingFront?
    private let state: Monitor<State>

    init(
        _ request: RequestHead,
        parts: [[UInt8]],
        end: End,
        lane: WritingFront? = nil,
        isDead: @escaping @Sendable () -> Bool,
        onInterim: @escaping @Sendable (ResponseHead) -> Void,
        onTurn: @escaping @Sendable () -> Void
    ) {
        self.request = request
        self.end = end
        self.isDead = isDead
        front = lane
        self.onInterim = onInterim
        self.onTurn = onTurn
        context = ExchangeContext(interimStatuses: [104])
        let state = Monitor(State(parts: parts))
        self.state = state
        interrupt = { state.update { $0.isReleased = true } }
    }

    // MARK: The client's side

    var interims: [ResponseHead] { state.update { $0.heard } }
    var final: ResponseHead? { state.update { $0.final } }
    var content: [UInt8] { state.update { $0.content } }
    /// Violations that no web server would forward.
    var faults: [String] { state.update { $0.faults } }

    func hangUp() { state.update { $0.isGone = true } }

    func noteEnd() { state.update { $0.isEnded = true } }

    /// Returns false at the deadline.
    func waitUntilStuck() -> Bool {
        state.wait(until: .after(.seconds(60))) { $0.isStuck || $0.isEnded ? true : nil } ?? false
    }

    func waitUntilOver() -> Bool {
        state.wait(until: .after(.seconds(60))) { $0.isEnded ? true : nil } ?? false
    }

    // MARK: The web server's side

    var head: Result<RequestHead, Refusal> { .success(request) }
    var isPeerGone: Bool { isDead() }

    func receive(into buffer: ContentBuffer) throws(ContentError) -> Bool {
        guard !isDead() else { throw .truncated }
        onTurn()
        let part = state.update { $0.parts.isEmpty ? nil : $0.parts.removeFirst() }
        if let part {
            precondition(part.count <= buffer.free, "too large a script")
            buffer.fill { free in
                free.copyBytes(from: part)
                return part.count
            }
            return true
        }
        if let error = endOfContent() { throw error }
        return false
    }

    /// Waits if the content is stuck; nil if it ended properly.
    private func endOfContent() -> ContentError? {
        switch end {
        case .proper: return nil
        case .cut: return .truncated
        case .stuck:
            state.update { $0.isStuck = true }
            let error = state.wait(until: .after(.seconds(60))) { state -> ContentError? in
                if state.isReleased { return .released }
                return state.isGone ? .truncated : nil
            }
            return error ?? .stalled
        }
    }

    // MARK: The lane

    var lane: (any ContentLane)? { self }

    func isOffered() throws(ContentError) -> Bool {
        guard !isDead() else { throw .truncated }
        return front != nil
    }

    var wasOffered: Bool { front != nil }

    func grant(
        _ file: consuming Descriptor,
        at offset: Int64,
        _ limit: LaneLimit
    ) throws(ContentError) {
        front?.take(file, at: offset, limit)
    }

    func widen(_ limit: LaneLimit) throws(ContentError) {}

    func stop() { front?.close() }

    func receiveReport() throws(ContentError) -> LaneReport? {
        guard let lane = front else { preconditionFailure("a report without a grant") }
        onTurn()
        let part = state.update { $0.parts.isEmpty ? nil : $0.parts.removeFirst() }
        if let part {
            let (report, rest) = lane.write(part)
            if !rest.isEmpty { state.update { $0.parts.insert(rest, at: 0) } }
            // Content that the web server still holds is lost when the gateway crashes.
            if isDead() { lane.close() }
            guard !isDead() else { throw .truncated }
            guard let report else { throw .truncated }
            return report
        }
        guard !isDead(), let error = endOfContent() else {
            defer { lane.close() }
            guard !isDead() else { throw .truncated }
            return .ended(lane.count, errno: 0)
        }
        lane.close()
        throw error
    }

    func send(interim head: ResponseHead) -> Bool {
        onInterim(head)
        guard !isDead(), context.interimStatuses.contains(head.status.code) else { return false }
        var head = head
        beforeHead?(&head)
        state.update { state in
            if state.final != nil { state.faults.append("an interim head after the final one") }
            state.heard.append(head)
        }
        return true
    }

    func send(head: ResponseHead, contentLength: Int64?) throws(ClientGone) {
        var head = head
        beforeHead?(&head)
        guard !isDead() else { throw ClientGone() }
        state.update { state in
            if state.final != nil { state.faults.append("a second final head") }
            state.final = head
        }
    }

    func send(content: RawSpan) throws(ClientGone) {
        guard !isDead() else { throw ClientGone() }
        guard request.method != .head else { return }
        state.update { state in
            content.withUnsafeBytes { state.content.append(contentsOf: $0) }
        }
    }

    func withdraw() -> Bool {
        state.update { state in
            guard state.content.isEmpty else { return false }
            state.final = nil
            return true
        }
    }

    func abort() {}
}
