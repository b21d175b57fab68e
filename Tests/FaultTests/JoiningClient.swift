// A tus client that uploads parts and has them joined.
//
// Invariant: it requests one joined upload at a time; a part's `told` is the highest offset that it received.

import Foundation
import HTTPTypes
import SpoolgatePosix
import SpoolgateUploadProtocol

@testable import SpoolgateRequests
@testable import SpoolgateSettings
@testable import SpoolgateSpool

final class JoiningClient {
    struct Part {
        /// In the whole content.
        var range: Range<Int>
        var location: String?
        var told: Int64?

        var id: UploadID? { location.flatMap { UploadID($0.suffix(26)) } }
    }

    private let world: World
    /// Whether acknowledged data survives a power failure.
    let promises: Bool
    private let ends: [Int]
    /// Identifies the joined upload to the upstream.
    private(set) var number: Int
    private(set) var numbers: [Int]
    private(set) var parts: [Part] = []
    private(set) var location: String?
    /// A response said that the upstream or the queue has accepted the joined upload.
    private(set) var isTaken = false
    /// A response said that the outcome is unknown.
    private(set) var isHeld = false
    /// An operator has the upload delivered without the client's knowledge.
    var isQueuedByOperator = false
    var isForgotten = false
    private(set) var statuses: [Int] = []

    init(_ world: World, parts ends: [Int]) {
        self.world = world
        self.ends = ends
        number = world.nextNumber()
        numbers = [number]
        promises = world.settings.routes[RouteSettings.defaultName]?.promise == .powerCut
        cut()
    }

    private func cut() {
        parts = zip([0] + ends, ends).map { Part(range: $0..<$1) }
    }

    func content(of number: Int) -> [UInt8] {
        Array(UploadClient.content(number)[..<(ends.last ?? 0)])
    }

    private func beginAgain() {
        number = world.nextNumber()
        numbers.append(number)
        (location, isTaken, isHeld) = (nil, false, false)
        cut()
    }

    /// Forgets the state that need not survive a power failure.
    func notePowerCut() {
        guard !promises else { return }
        for index in parts.indices { parts[index].told = nil }
        isHeld = false
    }

    // MARK: Requests

    private func serve(
        _ method: HTTPMethod,
        _ target: String,
        _ fields: [HTTPField.Name: String],
        content: [UInt8] = [],
        by daemon: Daemon
    ) throws -> ClientExchange {
        var all: HTTPFields = [.tusResumable: Tus.version]
        for (name, value) in fields { all[name] = value }
        if !content.isEmpty { all[.contentType] = Tus.mediaType }
        let (machine, process) = (world.machine, daemon.process)
        let exchange = ClientExchange(
            RequestHead(
                method: method,
                target: target,
                fields: all,
                contentLength: .known(Int64(content.count))
            ),
            parts: content.isEmpty ? [] : [content],
            end: .proper,
            isDead: { machine.isDead(process) },
            onInterim: { _ in },
            onTurn: {}
        )
        daemon.gateway.serve(exchange)
        for fault in exchange.faults { world.complain(fault) }
        statuses = statuses.suffix(15) + [exchange.final?.status.code ?? 0]
        if machine.isDead(process) { throw Stopped() }
        return exchange
    }

    private func noteOffset(_ exchange: ClientExchange, of index: Int) {
        guard let offset = exchange.final?.fields[.uploadOffset].flatMap({ Int64($0) }) else {
            return
        }
        let told = parts[index].told ?? 0
        if offset < told { world.complain("offset \(offset) of a part after offset \(told)") }
        parts[index].told = max(told, offset)
    }

    private func bytes(_ range: Range<Int>) -> [UInt8] {
        Array(UploadClient.content(number)[range])
    }

    /// Uploads a part in two requests, or its missing rest; throws `Stopped` if it is still incomplete.
    func upload(_ index: Int, on daemon: Daemon) throws {
        let range = parts[index].range
        if parts[index].location == nil {
            let middle = range.lowerBound + range.count / 2
            let made = try serve(
                .post,
                "/files",
                [.uploadConcat: "partial", .uploadLength: "\(range.count)"],
                content: bytes(range.lowerBound..<middle),
                by: daemon
            )
            guard made.final?.status == .created else { throw Stopped() }
            parts[index].location = made.final?.fields[.location]
            noteOffset(made, of: index)
        }
        guard let location = parts[index].location else { throw Stopped() }
        let look = try serve(.head, location, [:], by: daemon)
        if look.final?.status == .notFound, parts[index].told == nil {
            // The joined upload may have been delivered and lost with the parts.
            if promises { parts[index].location = nil } else { beginAgain() }
        }
        guard look.final?.status == .ok else { throw Stopped() }
        noteOffset(look, of: index)
        let offset = Int(parts[index].told ?? 0)
        guard offset < range.count else { return }
        let rest = try serve(
            .patch,
            location,
            [.uploadOffset: "\(offset)"],
            content: bytes(range.lowerBound + offset..<range.upperBound),
            by: daemon
        )
        guard rest.final?.status == .noContent else { throw Stopped() }
        noteOffset(rest, of: index)
    }

    func ask(_ daemon: Daemon) throws {
        for index in parts.indices {
            guard let location = parts[index].location else { continue }
            let look = try serve(.head, location, [:], by: daemon)
            if look.final?.status == .ok { noteOffset(look, of: index) }
        }
    }

    func uploadAll(on daemon: Daemon) throws {
        for index in parts.indices { try upload(index, on: daemon) }
    }

    /// Returns the status, or 0 without a response.
    @discardableResult
    func join(_ order: [Int]? = nil, on daemon: Daemon) throws -> Int {
        let urls = (order ?? Array(parts.indices)).compactMap { parts[$0].location }
        guard urls.count == parts.count else { throw Stopped() }
        var fields: [HTTPField.Name: String] = [
            .uploadConcat: "final;" + urls.joined(separator: " ")
        ]
        if let name = HTTPField.Name("X-Upload") { fields[name] = "\(number)" }
        let exchange = try serve(.post, "/files", fields, by: daemon)
        guard let head = exchange.final else { return 0 }
        if order == nil { note(head, String(decoding: exchange.content, as: UTF8.self)) }
        return head.status.code
    }

    private func note(_ head: ResponseHead, _ text: String) {
        switch head.status.code {
        case 201:
            if let location, head.fields[.location] != location {
                world.complain("the same list was \(location), and is another upload now")
            }
            location = head.fields[.location]
            // A stored response has no content if the disk failed to store it.
            if !text.isEmpty, text != Origin.text(number, .short) {
                world.complain("the final response is '\(text)'")
            }
            isTaken = true
        case 424: isHeld = true
        default: break
        }
    }

    /// Like `UploadClient.comeBack`.
    func comeBack(to daemon: Daemon, mayBeGone: Bool) throws -> Bool {
        for _ in 0..<8 {
            if isTaken || isHeld { return true }
            do {
                try uploadAll(on: daemon)
            } catch is Stopped {
                if world.machine.isDead(daemon.process) { throw Stopped() }
                continue
            }
            // Without a promise, the parts may be useless after a power failure.
            if try join(on: daemon) == 410, mayBeGone, !promises { beginAgain() }
        }
        return isTaken || isHeld
    }
}
