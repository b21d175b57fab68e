// One attempt to deliver an upload: the request, the upstream's response, and the state of the upload afterwards.
//
// A final response up to the cap is stored before its first byte is sent to the client. If the response is larger, only
// its head is stored, and its content is streamed. Every response to an upload without a record is streamed. Invariant:
// a response that is not final is neither stored nor relayed.

import HTTPTypes
import SpoolgateExchange
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import SpoolgateUpstream

/// One attempt to deliver an upload, and the response received so far.
///
/// Not thread-safe.
final class DeliveryAttempt {
    private let upload: Upload
    private let digests: UploadDigests
    private let listener: ResponseListener
    private let delivery: Delivery
    private let isRepeatable: Bool
    /// The authorizer's new values for the credentials that it set at the creation.
    private let grant: Grant?
    /// The slot, which is returned when the response head arrives; nil if the attempt needs none.
    private let slot: DeliverySlot?
    /// The head of the final response as relayed; nil until the head arrives.
    private var head: ResponseHead?
    private var contentLength: Int64?
    private var content: [UInt8] = []
    private var isStreaming = false
    private var result = AttemptResult.accepted
    private var decision = AttemptDecision.delivered
    private var retryAfter: Int?
    /// The request that was last sent.
    private var request: UpstreamRequest?
    /// Whether the upstream responded with 421, and the request is sent again over a new connection.
    private var isMisdirected = false
    /// Whether the gateway's own refusal replaces the upstream's response.
    private var isReplaced = false
    /// The head of the upstream's response, also if it is replaced; nil until it arrives.
    private var received: ResponseHead?
    private var isStored = false
    private var spoolError: SpoolError?
    /// Whether the head of the final response was sent to the client.
    private var hasBegun = false
    private var relaysContent = true

    private var route: Route { delivery.route }
    private var journal: Journal { delivery.journal }
    private var deliveries: Deliveries { delivery.deliveries }
    private var log: Log { delivery.journal.log }

    init(
        _ upload: Upload,
        _ digests: UploadDigests,
        to listener: ResponseListener,
        by delivery: Delivery,
        in slot: DeliverySlot?,
        _ grant: Grant? = nil
    ) {
        self.upload = upload
        self.digests = digests
        self.listener = listener
        self.delivery = delivery
        self.slot = slot
        self.grant = grant
        isRepeatable = upload.isRecorded && delivery.isRepeatable(upload)
    }

    /// Makes the attempt.
    ///
    /// The result and errors are those of `Delivery.deliver`.
    func run() throws(SpoolError) -> Refusal? {
        let form: UploadForm
        do throws(FormFailure) {
            form = try UploadForm(
                of: upload,
                completing: listener.completing,
                grant,
                digests,
                by: delivery,
                onProgress: onProgress
            )
        } catch {
            journal.notSent(on: route.counts, of: upload.creation.client, reason: error.reason)
            let refusal = error.refusal(isKept: upload.isRecorded)
            return try delivery.postpone(upload, listener, error.reason, refusal)
        }
        let outcome = try send(form)
        return upload.isRecorded ? try end(outcome, form) : endUnrecorded(outcome, form)
    }

    /// Ends the attempt of an upload without a record.
    private func endUnrecorded(_ outcome: AttemptOutcome, _ form: UploadForm) -> Refusal? {
        form.end(status: status)
        guard let reason = outcome.reason,
            let refusal = outcome.refusal(isRepeatable: false, isKept: false)
        else {
            journal.delivered(upload, status: status)
            return nil
        }
        if case .undelivered = outcome {
            // The upstream has responded, but the client received only a part.
            journal.delivered(upload, status: status)
            let target = upload.creation.head.target
            log.clientGone(route: route.name, target: target, reason: reason)
            abort()
            return nil
        }
        if outcome.isUnsent { form.takeBack() }
        journal.failed(upload, reason: reason)
        if !hasBegun || listener.exchange?.withdraw() == true { return refusal }
        abort()
        return nil
    }

    private func end(_ outcome: AttemptOutcome, _ form: UploadForm) throws(SpoolError) -> Refusal? {
        if outcome == .responded { finish() }
        form.end(status: isStored ? status : nil)
        if let error = spoolError {
            // The upstream has accepted the upload, so the response counts even if the gateway cannot store it.
            guard hasBegun else { throw error }
            journal.spoolFailed(error, upload: upload.creation.id)
        }
        guard let reason = outcome.reason,
            let refusal = outcome.refusal(isRepeatable: isRepeatable, isKept: true)
        else {
            if decision.isFinal {
                noteFinalResponse()
                return nil
            }
            if result == .notNow { upload.mayBeProcessed = true }
            return try delivery.postpone(
                upload,
                listener,
                responseReason,
                self.refusal,
                retryAfter: retryAfter,
                lacksCredentials: decision == .deferredForClient
            )
        }
        // A final response over the cap was stored first, but the client received only a part of the content.
        if isStored || hasBegun {
            noteFinalResponse()
            abort()
            return nil
        }
        let result: AttemptResult = outcome.isUnsent ? .unsent : .noResponse
        if AttemptDecision(after: result, isRepeatable: isRepeatable, .gone) == .deferred {
            if result == .noResponse { upload.mayBeProcessed = true }
            let pause = outcome.retryAfter
            return try delivery.postpone(upload, listener, reason, refusal, retryAfter: pause)
        }
        try delivery.holdIndeterminate(upload, listener, reason)
        return refusal
    }

    private func noteFinalResponse() {
        guard let cause = upload.holdCause else {
            return journal.delivered(upload, status: status)
        }
        deliveries.holdSizes.add(upload)
        let reason = upload.reason ?? ""
        if cause == .failed {
            journal.failed(upload, status: status, reason: reason)
        } else {
            journal.indeterminate(upload, reason: reason)
        }
    }

    // MARK: Sending

    private static let maximumRedirects = 2

    /// Sends the request, again for each redirect within the upstream.
    ///
    /// Returns and counts only the last outcome.
    private func send(_ form: UploadForm) throws(SpoolError) -> AttemptOutcome {
        let watch = Stopwatch()
        let outcome =
            upload.isRecorded ? try sendRecorded(form.request) : sendUnrecorded(form.request)
        journal.attempted(
            on: route.counts,
            outcome,
            of: upload.creation.client,
            status: status,
            isDeferred: !decision.isFinal,
            nanoseconds: watch.nanoseconds
        )
        return outcome
    }

    private func sendUnrecorded(_ first: UpstreamRequest) -> AttemptOutcome {
        let outcome = attempt(first)
        guard isMisdirected else { return outcome }
        var request = first
        request.needsNewConnection = true
        return attempt(request)
    }

    private func sendRecorded(_ first: UpstreamRequest) throws(SpoolError) -> AttemptOutcome {
        journal.metrics.delivering.add()
        defer { journal.metrics.delivering.add(-1) }
        var request = first
        var redirects = 0
        try upload.beginAttempt(isRepeatable: isRepeatable)
        while true {
            journal.delivering(upload)
            // A redirect beyond the limit is relayed, like a redirect to another host.
            request.interceptsRedirects = redirects < Self.maximumRedirects
            let outcome = attempt(request)
            if isMisdirected, !request.needsNewConnection {
                request.needsNewConnection = true
            } else if case .redirected(let target) = outcome {
                route.noteFollowed(target, from: request.target, log)
                request.target = target
                redirects += 1
            } else {
                return outcome
            }
            try upload.beginNextAttempt()
        }
    }

    private func attempt(_ request: UpstreamRequest) -> AttemptOutcome {
        isMisdirected = false
        self.request = request
        return route.upstream.attempt(request, sink: self)
    }
}

// MARK: The response

extension DeliveryAttempt: ResponseSink {
    private var status: Int { head?.status.code ?? 0 }

    func onProgress() {
        if !hasBegun { listener.heartbeat?.beat(upload, failingInto: journal) }
    }

    func receive(interim head: ResponseHead) { listener.exchange?.send(interim: head) }

    func receive(head: ResponseHead, contentLength: Int64?) throws {
        // The server did not process the request (RFC 9110 §15.5.20). Its second 421 is final.
        if head.status.code == 421, request?.needsNewConnection == false {
            isMisdirected = true
            return
        }
        slot?.giveBack()
        received = head
        route.counts.noteSteering(head.fields, route: route.name, log)
        var shown = ResponseHead(
            status: head.status,
            fields: UpstreamFields.relayed(head.fields)
        ).fitting(noting: log, upload: upload.isRecorded ? upload.creation.id : nil)
        digests.plan.add(digests.values, in: &shown)
        self.head = shown
        self.contentLength = contentLength
        guard upload.isRecorded else {
            // The response is not stored, so it need not be complete.
            isStreaming = true
            return try begin(contentLength: contentLength)
        }
        retryAfter = head.fields[.retryAfter].flatMap(seconds(ofRetryAfter:))
        result = result(of: head)
        decision = decisionOnUpload
        // The redirect to a login must look like a 401 to the client, and in the record. After 202, a client may return
        // for the stored response.
        let isLogin = result == .unauthorized || result == .elsewhere && isRepeatable
        if isLogin, head.status.code < 400, decision == .refused || decision == .failed {
            let refusal = Refusal.credentialsRefused([], isKept: false).response
            self.head = refusal.head
            self.contentLength = Int64(refusal.content.count)
            content = refusal.content
            isReplaced = true
        }
    }

    /// Reads a number of seconds or a date (RFC 9110 §10.2.3); returns nil for any other value.
    private func seconds(ofRetryAfter value: String) -> Int? {
        let now = deliveries.clock.now.seconds
        let seconds =
            Int64(digits: value) ?? HTTPDate.seconds(value, now: now).map { max(0, $0 - now) }
        return seconds.map { Int(clamping: $0) }
    }

    private func result(of head: ResponseHead) -> AttemptResult {
        let redirection = request.flatMap { request in
            Redirection(
                head,
                from: request.target,
                hosts: hosts(of: request),
                route.settings.upstream.redirects
            )
        }
        let result = AttemptResult(
            head.status,
            redirection,
            method: route.method(for: upload.creation.head),
            notProcessed: route.settings.notProcessed
        )
        if let redirection { route.note(redirection, status: head.status.code, log) }
        // The upstream asks for a longer pause than any retry makes.
        let longest = route.settings.queue.maximumBackoff.components.seconds
        return result == .busy && Int64(retryAfter ?? 0) > longest ? .refused : result
    }

    /// The names of the application: those of the upstream, and those under which its clients reach it.
    private func hosts(of request: UpstreamRequest) -> [String] {
        [
            request.fields[.host], upload.creation.head.fields[.host], listener.completing?[.host],
        ].compactMap { $0 } + route.settings.upstream.hosts
    }

    private var decisionOnUpload: AttemptDecision {
        let client = listener.knowledge(isAccepted: route.hasAccepted(upload))
        let decision = AttemptDecision(after: result, isRepeatable: isRepeatable, client)
        // A redirect elsewhere is not proof that the application received the upload, so it is kept in any case.
        guard decision == .heldWithResponse, result == .notNow, client.waits,
            deliveries.isHoldFull(route)
        else { return decision }
        deliveries.noteHoldFull(route)
        return .refused
    }

    func receive(content part: RawSpan) throws {
        guard decision.isFinal, !isMisdirected, !isReplaced else { return }
        if !isStreaming {
            if Int64(content.count + part.byteCount) <= route.settings.maxResponseSize {
                part.withUnsafeBytes { content.append(contentsOf: $0) }
                return
            }
            isStreaming = true
            store(content: nil)
            try begin(contentLength: contentLength)
        }
        if relaysContent { try listener.exchange?.send(content: part) }
    }

    private func finish() {
        guard !isStreaming, decision.isFinal else { return }
        store(content: content)
        // `try?`: a disconnected client can request the stored response later.
        try? begin(contentLength: contentLength ?? Int64(content.count))
    }

    /// The refusal sent to the client instead of a response that is not final.
    private var refusal: Refusal {
        switch decision {
        case .deferredForClient:
            .credentialsRefused(received?.fields[values: .wwwAuthenticate] ?? [])
        case .deferred where result == .redirect: .upstreamRedirects
        case .delivered, .refused, .failed, .heldWithResponse, .held, .deferred:
            .upstreamBusy(retryAfter: retryAfter)
        }
    }

    private func begin(contentLength: Int64?) throws(ClientGone) {
        let held = content
        content = []
        guard let head, let exchange = listener.exchange else { return }
        hasBegun = true
        let final = listener.final(head, of: upload, isSuccess: decision == .delivered)
        relaysContent = final.hasContent
        let isWithContent =
            final.hasContent && (final.head.status.hasContent || !upload.isRecorded)
        try exchange.send(head: final.head, contentLength: isWithContent ? contentLength : nil)
        if final.hasContent, !held.isEmpty { try exchange.send(content: held.span.bytes) }
    }

    private var responseReason: String {
        let status = received?.status.code ?? 0
        let reason = "the upstream responded with \(status)"
        switch result {
        case .elsewhere: return reason + ", a redirect to another host (redirects.success)"
        case .unauthorized where status != 401: return reason + ", a redirect to a login"
        default: return reason
        }
    }

    private func abort() { listener.exchange?.abort() }

    private func store(content: [UInt8]?) {
        guard let head else { return }
        let response = StoredResponse(head: head, content: content)
        do throws(SpoolError) {
            switch decision {
            case .failed, .heldWithResponse:
                let cause = decision == .failed ? HoldCause.failed : .indeterminate
                try delivery.hold(upload, listener, cause, responseReason, response)
            case .delivered, .refused, .held, .deferred, .deferredForClient:
                try upload.finish(with: response)
            }
            isStored = true
        } catch {
            spoolError = error
        }
    }
}
