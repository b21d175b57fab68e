// Every request that is no upload, and ordinary uploads where the route says so: streamed to the upstream
// and back, nothing kept.

import HTTPTypes
import SpoolgateDelivery
import SpoolgateExchange
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import SpoolgateUpstream

extension Request {
    /// Passes a request through.
    ///
    /// - Parameters:
    ///   - most: most bytes of content; a request with more is refused, or broken off where its
    ///     answer has begun.
    ///   - isUpload: whether it is an ordinary upload, whose delivery this is.
    ///   - fallback: the answer where the upstream gave none.
    ///   - transform: has the last word on the response's head.
    func passThrough(
        atMost most: Int64,
        isUpload: Bool = false,
        otherwise fallback: Response? = nil,
        _ transform: @escaping (ResponseHead) -> ResponseHead
    ) {
        do throws(SpoolError) {
            try gateway.spool.buffers.withBuffer {
                passThrough(by: $0, atMost: most, isUpload: isUpload, fallback, transform)
            }
        } catch {
            log.spoolFailed(error, upload: nil)
            refuse(error.refusal)
        }
    }

    private func passThrough(
        by buffer: ContentBuffer,
        atMost most: Int64,
        isUpload: Bool,
        _ fallback: Response?,
        _ transform: @escaping (ResponseHead) -> ResponseHead
    ) {
        let content: UpstreamContent
        let room = PassedRoom(most)
        do throws(ContentError) {
            content = try passedContent(buffer, room)
        } catch {
            return giveUp("cannot read the content: \(error)")
        }
        var fields = UpstreamFields.passedThrough(head.fields, policy: route.settings.fields)
        fields.addForwarding(
            route.settings.fields.forwarding,
            address: context.remoteAddress,
            scheme: context.scheme,
            host: head.fields.value(of: .host),
            by: route.gateway
        )
        UpstreamFields.finish(&fields, policy: route.settings.fields)
        let relay = StreamRelay(
            exchange,
            transform: transform,
            route: route,
            log: log
        )
        var request = UpstreamRequest(
            method: head.method,
            target: head.target,
            fields: fields,
            content: content
        )
        if let path = fields.value(of: .destination)?.path(below: context.origin) {
            request.fields[.destination] = nil
            request.destination = path
        }
        let outcome = route.upstream.attempt(request, sink: relay)
        if isUpload {
            journal.streamed(on: route.counts, outcome, of: client, status: relay.status)
        }
        guard let reason = outcome.reason,
            let refusal = outcome.refusal(isRepeatable: false, isKept: false)
        else { return }
        switch outcome {
        case .abandoned where room.isExceeded:
            fail(.tooLarge(maxSize: most), relay)
        case .abandoned, .unheard:
            // The client's content broke off, or the client is gone: it hears nothing of the
            // upstream, which is not at fault.
            giveUp(reason)
        case .answered, .notTried, .notReached, .noRoom, .putOff, .redirected, .notForwarded,
            .indeterminate:
            log.passThroughFailed(route: route.name, target: head.target, reason: reason)
            if let fallback, !relay.hasBegun { return exchange.answer(fallback) }
            fail(refusal, relay)
        }
    }

    /// Ends a request that the upstream failed: refused, or broken off where its answer has begun.
    private func fail(_ refusal: Refusal, _ relay: StreamRelay) {
        if relay.hasBegun { exchange.abort() } else { refuse(refusal) }
    }

    /// The request's content as a stream.
    ///
    /// Without a length only reading tells whether there is any; a client that expects 100 (Continue)
    /// has some (RFC 9110 §10.1.1), which is read when the upstream takes it.
    private func passedContent(
        _ buffer: ContentBuffer,
        _ room: PassedRoom
    ) throws(ContentError) -> UpstreamContent {
        buffer.removeAll()
        let length: Int64?
        switch head.contentLength {
        case .known(0): return .none
        case .known(let known): length = known
        case .unknown where head.expectsContinue: length = nil
        case .unknown:
            guard try exchange.receive(into: buffer) else { return .none }
            length = nil
            // What is too much already is told when it is read.
            room.free -= Int64(buffer.count)
        }
        var taken = 0
        return .stream(length: length) { [exchange] target in
            try room.check()
            if taken == buffer.count {
                buffer.removeAll()
                taken = 0
                guard try exchange.receive(into: buffer) else { return 0 }
                room.free -= Int64(buffer.count)
                try room.check()
            }
            let count = min(target.count, buffer.count - taken)
            buffer.withBytes { bytes in
                bytes.withUnsafeBytes { target.copyBytes(from: $0[taken..<taken + count]) }
            }
            taken += count
            return count
        }
    }
}

/// How much content a request that passes through may still have.
private final class PassedRoom {
    private struct Exceeded: Error {}

    var free: Int64
    var isExceeded: Bool { free < 0 }

    init(_ most: Int64) { free = most }

    func check() throws { if isExceeded { throw Exceeded() } }
}

/// Relays a response as it arrives.
private final class StreamRelay: ResponseSink {
    private let exchange: any Exchange
    private let transform: (ResponseHead) -> ResponseHead
    private let route: Route
    private let log: Log
    /// Whether the upstream's content belongs to another status than the one sent on.
    private var dropsContent = false
    /// The upstream's status; 0 before its head came.
    private(set) var status = 0
    /// Whether the final head has been sent on.
    var hasBegun: Bool { status != 0 }

    /// Relays to `exchange`.
    ///
    /// - Parameters:
    ///   - exchange: where the response goes.
    ///   - transform: has the last word on the head; where it changes the status, the upstream's content
    ///     is left out.
    ///   - route: whose upstream it is.
    ///   - log: where it is told that a head could not be relayed whole, or has a field that is ignored.
    init(
        _ exchange: any Exchange,
        transform: @escaping (ResponseHead) -> ResponseHead,
        route: Route,
        log: Log
    ) {
        self.exchange = exchange
        self.transform = transform
        self.route = route
        self.log = log
    }

    func receive(interim head: ResponseHead) { exchange.send(interim: head) }

    func receive(head: ResponseHead, contentLength: Int64?) throws {
        status = head.status.code
        route.counts.noteSteering(head.fields, route: route.name, log)
        let fields = UpstreamFields.passedBack(head.fields)
        var relayed = transform(
            ResponseHead(status: head.status, fields: fields).fitting(telling: log)
        )
        dropsContent = relayed.status != head.status
        if dropsContent { relayed.fields[.contentType] = nil }
        try exchange.send(head: relayed, contentLength: dropsContent ? 0 : contentLength)
    }

    func receive(content: RawSpan) throws {
        if !dropsContent { try exchange.send(content: content) }
    }
}
