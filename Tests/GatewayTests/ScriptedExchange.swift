// A scripted web server: one request, and a record of its response.
//
// It checks the rules of every web server: one final head, no interim response after it, content of the announced
// length. Invariant: a read ends as scripted, by `interrupt`, or at a deadline that only broken code reaches.

import HTTPTypes
@testable import SpoolgateExchange
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateRequests
import SpoolgateUploadProtocol

final class ScriptedExchange: Exchange, ContentLane, Sendable {
    enum Step: Sendable, ExpressibleByStringLiteral {
        case bytes([UInt8])
        /// Waits until `interrupt`.
        case stuck
        case fails(ContentError)
        /// A fragment that arrives with the early end.
        case bytesThenFails([UInt8], ContentError)
        /// Runs a closure before the next read.
        case happens(@Sendable () -> Void)

        static func text(_ text: String) -> Step { .bytes(Array(text.utf8)) }

        init(stringLiteral text: String) { self = .text(text) }
    }

    enum Event: Equatable {
        case interim(Int)
        case read
        case head(Int)
        case abort
    }

    struct Record {
        var events: [Event] = []
        var interims: [ResponseHead] = []
        var head: ResponseHead?
        var contentLength: Int64?
        var content: [UInt8] = []
        var isAborted = false
        /// Violations that no web server would forward.
        var faults: [String] = []
        var isPeerGone = false
        /// The content bytes after which the client is gone; -1: the head.
        var leavesAfter: Int?
        var lane: ScriptedLane?
        /// Whether an alarm can end waits for content.
        var hasAlarm = false
        fileprivate var steps: [Step] = []
        fileprivate var isReleased = false
        fileprivate var isStuck = false
        fileprivate var isLooked = false
    }

    let request: RequestHead
    let context: ExchangeContext
    let interrupt: @Sendable () -> Void
    nonisolated(unsafe) var beforeHead: ((inout ResponseHead) -> Void)?
    private let monitor: Monitor<Record>

    init(
        _ method: HTTPRequest.Method,
        _ target: String,
        _ fields: HTTPFields = [:],
        _ steps: [Step] = [],
        length: ContentLength? = nil,
        context: ExchangeContext = ExchangeContext(interimStatuses: [104])
    ) {
        let sum = steps.reduce(Int64(0)) { sum, step in
            switch step {
            case .bytes(let bytes), .bytesThenFails(let bytes, _): sum + Int64(bytes.count)
            case .stuck, .fails, .happens: sum
            }
        }
        // As the FastCGI listener does.
        var fields = fields
        fields.applyConnection()
        request = RequestHead(
            method: method,
            target: target,
            fields: fields,
            contentLength: length ?? .known(sum)
        )
        self.context = context
        var record = Record()
        record.steps = steps
        let monitor = Monitor(record)
        self.monitor = monitor
        interrupt = { monitor.update { $0.isReleased = true } }
    }

    // MARK: For tests

    var record: Record { monitor.update { $0 } }

    var head: Result<RequestHead, Refusal> {
        monitor.update { $0.isLooked = true }
        return .success(request)
    }

    var isPeerGone: Bool { monitor.update { $0.isPeerGone } }

    func abandon() { monitor.update { $0.isPeerGone = true } }

    var isInterrupted: Bool { monitor.update { $0.isReleased } }

    /// Offers that the web server writes the content itself.
    func offer(_ lane: ScriptedLane) -> Self {
        monitor.update { $0.lane = lane }
        return self
    }

    func leave(after count: Int) { monitor.update { $0.leavesAfter = count } }

    /// Waits until the gateway waits for content.
    func waitUntilStuck() -> Bool { wait { $0.isStuck } }

    /// Waits until the gateway has begun the request.
    func waitUntilLooked() -> Bool { wait { $0.isLooked } }

    private func wait(for condition: (Record) -> Bool) -> Bool {
        monitor.wait(until: .after(.seconds(300))) { condition($0) ? true : nil } ?? false
    }

    // MARK: Exchange

    func receive(into buffer: ContentBuffer) throws(ContentError) -> Bool {
        while true {
            let step = monitor.update { record -> Step? in
                if record.events.last != .read { record.events.append(.read) }
                if record.isReleased, !record.steps.isEmpty { return .fails(.released) }
                return record.steps.isEmpty ? nil : record.steps.removeFirst()
            }
            switch step {
            case nil: return false
            case .happens(let body): body()
            case .fails(let error): throw error
            case .bytes(let bytes):
                let count = add(bytes[...], to: buffer)
                if count < bytes.count {
                    monitor.update { $0.steps.insert(.bytes(Array(bytes[count...])), at: 0) }
                }
                return true
            case .bytesThenFails(let bytes, let error):
                precondition(add(bytes[...], to: buffer) == bytes.count, "too large a script")
                throw error
            case .stuck:
                monitor.update { $0.isStuck = true }
                let released = wait { $0.isReleased }
                throw released ? .released : .stalled
            }
        }
    }

    func setAlarm(_ alarm: Alarm?) { monitor.update { $0.hasAlarm = alarm != nil } }

    // MARK: The lane

    var lane: (any ContentLane)? { self }

    func isOffered() throws(ContentError) -> Bool {
        monitor.update { $0.lane?.isOffered == true }
    }

    var wasOffered: Bool { monitor.update { $0.lane != nil } }

    func grant(
        _ file: consuming Descriptor,
        at offset: Int64,
        _ limit: LaneLimit
    ) throws(ContentError) {
        monitor.update { $0.lane }?.take(file, at: offset, limit)
    }

    func widen(_ limit: LaneLimit) throws(ContentError) { monitor.update { $0.lane }?.widen(limit) }

    func stop() { monitor.update { $0.lane }?.stop() }

    func receiveReport() throws(ContentError) -> LaneReport? {
        guard let lane = monitor.update({ $0.lane }) else { throw .truncated }
        while true {
            let step = monitor.update { record -> Step? in
                if record.isReleased, !record.steps.isEmpty { return .fails(.released) }
                return record.steps.isEmpty ? nil : record.steps.removeFirst()
            }
            switch step {
            case nil: return lane.end()
            case .happens(let body): body()
            case .fails(let error):
                if error == .truncated { lane.leave() }
                throw error
            case .bytes(let bytes):
                let (report, rest) = lane.write(bytes)
                if !rest.isEmpty { monitor.update { $0.steps.insert(.bytes(rest), at: 0) } }
                return report
            case .bytesThenFails(let bytes, let error):
                let (report, rest) = lane.write(bytes)
                if !rest.isEmpty {
                    monitor.update { $0.steps.insert(.bytesThenFails(rest, error), at: 0) }
                    return report
                }
                lane.leave()
                throw error
            case .stuck:
                monitor.update { $0.isStuck = true }
                let released = wait { $0.isReleased }
                throw released ? .released : .stalled
            }
        }
    }

    private func add(_ bytes: ArraySlice<UInt8>, to buffer: ContentBuffer) -> Int {
        let count = min(bytes.count, buffer.free)
        buffer.fill { free in
            free.copyBytes(from: bytes.prefix(count))
            return count
        }
        return count
    }

    func send(interim head: ResponseHead) -> Bool {
        guard context.interimStatuses.contains(head.status.code) else { return false }
        var head = head
        beforeHead?(&head)
        monitor.update { [head] record in
            if record.head != nil { record.faults.append("an interim head after the final one") }
            record.events.append(.interim(head.status.code))
            record.interims.append(head)
        }
        return true
    }

    func send(head: ResponseHead, contentLength: Int64?) throws(ClientGone) {
        var head = head
        beforeHead?(&head)
        try monitor.update { [head] record throws(ClientGone) in
            if record.head != nil { record.faults.append("a second final head") }
            if record.isAborted { record.faults.append("a head after the abort") }
            record.events.append(.head(head.status.code))
            record.head = head
            record.contentLength = contentLength
            if record.leavesAfter == -1 { throw ClientGone() }
        }
    }

    func send(content: RawSpan) throws(ClientGone) {
        try monitor.update { record throws(ClientGone) in
            if record.head == nil { record.faults.append("content before a head") }
            if request.method == .head { return }
            content.withUnsafeBytes { record.content.append(contentsOf: $0) }
            if let limit = record.leavesAfter, record.content.count > limit { throw ClientGone() }
        }
    }

    /// A web server has received nothing of a head without content, and of a small response of known length.
    func withdraw() -> Bool {
        monitor.update { record in
            guard !record.isAborted else { return false }
            let isCollected = record.contentLength != nil && record.content.count < 16_000
            guard record.content.isEmpty || isCollected else { return false }
            if let status = record.head?.status.code {
                record.events.removeAll { $0 == .head(status) }
            }
            (record.head, record.contentLength, record.content) = (nil, nil, [])
            return true
        }
    }

    func abort() {
        monitor.update { record in
            record.events.append(.abort)
            record.isAborted = true
            record.lane?.connectionIsClosed()
        }
    }
}

extension ScriptedExchange.Record {
    var status: Int? { head?.status.code }
    var text: String { String(decoding: content, as: UTF8.self) }
    var offset: Int64? { self[.uploadOffset].flatMap { Int64($0) } }

    subscript(_ name: HTTPField.Name) -> String? { head?.fields[name] }

    /// The upload resource's path from any response.
    var location: String? {
        self[.location] ?? interims.lazy.compactMap { $0.fields[.location] }.first
    }
}
