// Requests that are streamed to the upstream and back without storing anything: requests that are not uploads, and
// ordinary uploads if the route says so.

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
    /// Passes a request to the upstream, and the response to the client.
    ///
    /// A request with more than `maximum` bytes of content is refused, or aborted if its response has begun. `isUpload` is
    /// true if the request is an ordinary upload. `fallback` is sent if the upstream sends no response; if `fallback`
    /// is nil, the request is refused.
    func passThrough(
        upTo maximum: Int64,
        isUpload: Bool = false,
        otherwise fallback: Response? = nil,
        _ transform: @escaping (ResponseHead) -> ResponseHead
    ) {
        do throws(SpoolError) {
            try gateway.spool.buffers.withBuffer {
                passThrough(by: $0, upTo: maximum, isUpload: isUpload, fallback, transform)
            }
        } catch {
            log.spoolFailed(error, upload: nil)
            refuse(error.refusal)
        }
    }

    private func passThrough(
        by buffer: ContentBuffer,
        upTo maximum: Int64,
        isUpload: Bool,
        _ fallback: Response?,
        _ transform: @escaping (ResponseHead) -> ResponseHead
    ) {
        let content: UpstreamContent
        let room = PassedRoom(maximum)
        do throws(ContentError) {
            content = try passedContent(buffer, room)
        } catch {
            return giveUp("cannot read the content: \(error)")
        }
        var fields = UpstreamFields.passedThrough(
            head.fields,
            granted: head.granted,
            policy: route.settings.fields
        )
        fields.addForwarding(
            route.settings.fields.forwarding,
            address: context.remoteAddress,
            scheme: context.scheme,
            host: head.fields.value(of: .host),
            except: head.granted,
            by: route.gateway
        )
        UpstreamFields.finish(
            &fields,
            policy: route.settings.fields,
            via: route.gateway.via,
            correlation: gateway.deliveries.current.settings.correlation(in: head)
        )
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
            fail(.tooLarge(maxSize: maximum))
        case .abandoned, .undelivered:
            // The upstream is not at fault, so no response is sent.
            giveUp(reason)
        case .responded, .notTried, .notReached, .noRoom, .deferred, .redirected, .notForwarded,
            .indeterminate:
            log.passThroughFailed(route: route.name, target: head.target, reason: reason)
            if let fallback, exchange.withdraw() { return exchange.respond(fallback) }
            fail(refusal)
        }
    }

    private func fail(_ refusal: Refusal) {
        if exchange.withdraw() { refuse(refusal) } else { exchange.abort() }
    }

    /// The request's content as a stream.
    ///
    /// If the content's length is unknown, the first read shows whether there is content. A client that expects 100
    /// (Continue) has content (RFC 9110 §10.1.1), which is read only when the upstream asks for it.
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
            guard try receive(into: buffer) else { return .none }
            length = nil
            // The first read of the stream reports an excess.
            room.free -= Int64(buffer.count)
        }
        var taken = 0
        return .stream(length: length) { [self] target in
            try room.check()
            if taken == buffer.count {
                buffer.removeAll()
                taken = 0
                guard try receive(into: buffer) else { return 0 }
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

/// How many bytes of content the request may still send.
private final class PassedRoom {
    private struct Exceeded: Error {}

    var free: Int64
    var isExceeded: Bool { free < 0 }

    init(_ maximum: Int64) { free = maximum }

    func check() throws { if isExceeded { throw Exceeded() } }
}

private final class StreamRelay: ResponseSink {
    private let exchange: any Exchange
    private let transform: (ResponseHead) -> ResponseHead
    private let route: Route
    private let log: Log
    /// Whether the upstream's content is dropped because `transform` changed the status.
    private var dropsContent = false
    /// The status of the final response; 0 until its head is received.
    private(set) var status = 0

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
            ResponseHead(status: head.status, fields: fields).fitting(noting: log)
        )
        dropsContent = relayed.status != head.status
        if dropsContent { relayed.fields[.contentType] = nil }
        try exchange.send(head: relayed, contentLength: dropsContent ? 0 : contentLength)
    }

    func receive(content: RawSpan) throws {
        if !dropsContent { try exchange.send(content: content) }
    }
}
