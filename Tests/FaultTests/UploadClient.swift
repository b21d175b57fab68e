// A client that knows the protocol but not the spool, and remembers the responses.
//
// Invariant: `told` is the highest offset in a response about its upload.

import Foundation
import HTTPTypes
import SpoolgatePosix
import SpoolgateUploadProtocol

@testable import SpoolgateDelivery
@testable import SpoolgateRequests
@testable import SpoolgateSettings
@testable import SpoolgateSpool

typealias HTTPMethod = HTTPRequest.Method

final class UploadClient {
    enum Purpose { case creation, append, retrieval, cancellation, ordinary }

    enum Digests { case none, right, wrong }

    private let world: World
    let method: HTTPMethod
    let response: Origin.Answer
    let version: Int
    /// Identifies the upload to the upstream.
    private(set) var number: Int
    private(set) var content: [UInt8]
    var location: String? { didSet { noteIdentity() } }
    /// The identity of an ordinary request accepted as an upload.
    private var acceptedAs: String? { didSet { noteIdentity() } }
    private(set) var identities: [Int: String] = [:]
    private var isLong = false
    /// Whether the web server itself writes its content.
    var hasLane = false
    /// nil for two fragments, the first one larger.
    var fragments: Int?
    var isOrdinary = false
    private(set) var failed: Set<Int> = []
    private let survivesPowerCut: Bool
    private(set) var told: Int64?
    /// A response came from the upstream.
    private(set) var hasFinal = false
    /// A response said that the outcome is unknown.
    private(set) var isHeld = false
    private(set) var isAccepted = false
    private(set) var isRefused = false
    /// An operator has held the upload or tried to.
    var isHeldByOperator = false
    var requeues = 0
    /// The attempts when the operator's requeueing was acknowledged.
    var attemptsBeforeRequeue: Int?
    /// It cancelled the upload or let it expire.
    var isGivenUp = false
    /// A clean stop has made everything durable, and nothing has changed since.
    var isKeptByStop = false
    var digests = Digests.none
    private(set) var isCancelled = false
    private(set) var numbers: [Int]
    private(set) var statuses: [Int] = []

    init(_ world: World, _ method: HTTPMethod, response: Origin.Answer, version: Int) {
        self.world = world
        self.method = method
        self.response = response
        self.version = version
        number = world.nextNumber()
        numbers = [number]
        content = Self.content(number)
        survivesPowerCut = world.settings.routes[RouteSettings.defaultName]?.promise == .powerCut
    }

    /// Whether a second delivery does no harm.
    var isRepeatable: Bool { method == .put }
    var length: Int { content.count }
    var identity: String? { acceptedAs ?? location?.split(separator: "/").last.map { String($0) } }

    private func noteIdentity() { if let identity { identities[number] = identity } }

    /// Each part of the content identifies its position: no zeros, and no two sectors alike.
    static func content(_ number: Int) -> [UInt8] {
        let start = number % 251
        return Array(pool[start..<start + 9001])
    }

    static func longContent(_ number: Int) -> [UInt8] {
        (0..<20).flatMap { content(number + $0) }
    }

    /// Makes its content too long to stay in memory.
    func sendMore() {
        isLong = true
        content = Self.longContent(number)
    }

    func content(of number: Int) -> [UInt8] {
        isLong ? Self.longContent(number) : Self.content(number)
    }

    private static let pool: [UInt8] = (0..<9252).map { (place: Int) -> UInt8 in
        let mixed = place * 31 + (place >> 9) * 77
        return UInt8(1 + mixed % 251)
    }

    // MARK: Requests

    /// The content is in two fragments by default.
    func exchange(
        _ purpose: Purpose,
        from: Int = 0,
        to: Int = 0,
        complete: Bool = false,
        end: ClientExchange.End = .proper,
        announced: Int? = nil,
        on daemon: Daemon
    ) -> ClientExchange {
        var fields: HTTPFields = [.uploadDraftInteropVersion: "\(version)"]
        var parts: [[UInt8]] = []
        var length = ContentLength.unknown
        switch purpose {
        case .creation, .append:
            fields[.uploadComplete] = complete ? "?1" : "?0"
            let middle = from + (to - from) * 2 / 3
            var ends = [middle, to]
            if let count = fragments { ends = (1...count).map { from + (to - from) * $0 / count } }
            parts = zip([from] + ends, ends).map { Array(content[$0..<$1]) }.filter { !$0.isEmpty }
            // The web server itself writes only large content or content of unknown length.
            if case .proper = end, !hasLane { length = .known(Int64(to - from)) }
            if let announced { fields[.uploadLength] = "\(announced)" }
            fields[.contentDigest] = digest(of: Array(content[from..<to]))
        case .ordinary:
            fields = [:]
            parts = stride(from: 0, to: self.length, by: 60_000).map {
                Array(content[$0..<min($0 + 60_000, self.length)])
            }
            length = .known(Int64(self.length))
        case .retrieval, .cancellation: break
        }
        if purpose == .creation || purpose == .ordinary {
            for (name, value) in [("X-Upload", "\(number)"), ("X-Answer", response.rawValue)] {
                if let name = HTTPField.Name(name) { fields[name] = value }
            }
        }
        if purpose == .append {
            fields[.uploadOffset] = "\(from)"
            fields[.contentType] = "application/partial-upload"
        }
        let methods: [Purpose: HTTPMethod] = [
            .creation: method, .append: .patch, .retrieval: .head, .cancellation: .delete,
            .ordinary: method,
        ]
        let (machine, origin, beside) = (world.machine, world.origin, world.beside)
        let (process, whole) = (daemon.process, "\(self.length)")
        return ClientExchange(
            RequestHead(
                method: methods[purpose] ?? .get,
                target: purpose == .creation || purpose == .ordinary
                    ? "/files" : location ?? "/nowhere",
                fields: fields,
                contentLength: length
            ),
            parts: parts,
            end: end,
            lane: hasLane && purpose != .ordinary ? WritingFront(machine) : nil,
            isDead: { machine.isDead(process) },
            onInterim: { if $0.fields[.uploadOffset] == whole { origin.open() } },
            onTurn: { beside.turn() }
        )
    }

    private func digest(of part: [UInt8]) -> String? {
        guard digests != .none else { return nil }
        let reading = DigestReading([.sha256])
        reading.update(part.span.bytes)
        if digests == .wrong { reading.update([0].span.bytes) }
        return reading.finish().fieldValue
    }

    /// Stops if the daemon crashed.
    @discardableResult
    func serve(_ exchange: ClientExchange, by daemon: Daemon) throws -> Int {
        daemon.gateway.serve(exchange)
        return try note(exchange, of: daemon)
    }

    func start(_ exchange: ClientExchange, by daemon: Daemon) throws {
        try SpoolgatePosix.Thread.start(name: "exchange", stackSize: 1 << 20) {
            daemon.gateway.serve(exchange)
            exchange.noteEnd()
        }
    }

    // MARK: Responses

    /// Returns the status, or 0 without a final response.
    @discardableResult
    func note(_ exchange: ClientExchange, of daemon: Daemon) throws -> Int {
        // After a crash, the consumer reads the directory only once the upload has continued.
        if !world.machine.isDead(daemon.process) { world.takeDrops() }
        for fault in exchange.faults { world.complain(fault) }
        for head in exchange.interims { note(head) }
        if let head = exchange.final { try note(head, exchange) }
        let status = exchange.final?.status.code ?? 0
        statuses = statuses.suffix(11) + [status]
        if world.machine.isDead(daemon.process) { throw Stopped() }
        return status
    }

    private func note(_ head: ResponseHead) {
        if let told = head.fields[.location] { location = told }
        if let text = head.fields[.uploadOffset] { noteOffset(text) }
    }

    private func note(_ head: ResponseHead, _ exchange: ClientExchange) throws {
        let text = String(decoding: exchange.content, as: UTF8.self)
        let expected = Origin.text(number, response)
        let isComplete = head.fields[.uploadComplete] == "?1"
        if isOrdinary { return noteOrdinary(head, text) }
        if head.status == .created, isComplete, world.isDropping {
            hasFinal = true
            if let told = head.fields[.location] { location = told }
            return
        }
        if head.status == .ok, isComplete, exchange.request.method != .head {
            // A stored response has no content if it was too long or the disk failed to store it.
            let isCut = response == .long || world.hasError
            let isReplay = exchange.request.method == .patch && isCut && text.isEmpty
            if text != expected, !isReplay {
                world.complain(
                    "the final response is '\(text.prefix(40))', not '\(expected.prefix(40))'"
                )
            }
            hasFinal = true
            if let told = head.fields[.location] { location = told }
            return
        }
        if head.status == .accepted {
            isAccepted = true
            return note(head)
        }
        if isComplete, head.status.code == Self.refusal.head.status.code {
            isRefused = true
            return
        }
        if isComplete, [410, 502, 503].contains(head.status.code) {
            isHeld = true
            return
        }
        if exchange.request.method == .delete {
            if head.status.code == 204 { isCancelled = true }
            return
        }
        note(head)
    }

    private func noteOrdinary(_ head: ResponseHead, _ text: String) {
        switch head.status {
        case .ok:
            if text != Origin.text(number, response) { world.complain("the response is '\(text)'") }
            hasFinal = true
        case .accepted:
            isAccepted = true
            let words = text.split(separator: "\"")
            acceptedAs = words.first { $0.utf8.count == 26 }.map { String($0) }
        default: failed.insert(number)
        }
    }

    /// Forgets the state that need not survive a power failure.
    func notePowerCut() {
        guard !survivesPowerCut, !isKeptByStop else { return }
        told = nil
        isHeld = false
    }

    private func noteOffset(_ text: String) {
        guard let offset = Int64(text) else { return world.complain("an offset is '\(text)'") }
        noteTold(offset)
    }

    func noteTold(_ offset: Int64) {
        if offset < told ?? 0 { world.complain("offset \(offset) after \(told ?? 0)") }
        if offset > length { world.complain("offset \(offset) of \(length) bytes") }
        told = max(told ?? 0, offset)
    }

    static let refusal = StoredResponse(
        head: ResponseHead(status: .unprocessableContent, fields: [:]),
        content: Array("no".utf8)
    )

    func beginAgain() {
        number = world.nextNumber()
        numbers.append(number)
        content = content(of: number)
        location = nil
        told = nil
        isHeld = false
    }
}
