// Tests the whole path from a client to the gateway by uploading as clients do.
//
// Invariant: the probe completes no upload and cancels all that it creates, even if it is stopped. After the gateway's
// first response, no request reaches the upstream.

import HTTPTypes
import SpoolgateCurl
import SpoolgatePosix
import SpoolgateUploadProtocol

/// A probe of one upload URL.
///
/// Use it on one thread, and only once.
package final class UploadProbe {
    private let question: ProbeQuestion
    private let requests: ProbeRequests
    private let isStopped: () -> Bool
    private let tell: (Finding) -> Void

    /// The number of bytes sent before the probe resets the connection.
    private static let part: Int64 = 4 << 20
    /// The duration of the slow transfer.
    private static let trickling = Duration.seconds(2)
    /// How long to wait until bytes that have left this machine reach the gateway.
    private static let settling = Duration.milliseconds(500)
    /// How long to wait for an interim response, in addition to round trips.
    ///
    /// Servers wait longer for content. If a server timed out, the upload's URL would be lost.
    private static let interimPatience = Duration.milliseconds(800)
    /// How long nginx's old workers may still respond after a reload.
    private static let reloading = Duration.seconds(1)
    private static let small: Int64 = 64 << 10
    /// The size, in bytes, of a header field that exceeds nginx's default limit.
    private static let longField = 32 << 10
    private static let creations = 8
    /// The length in bytes to declare, unless a limit of the gateway is smaller.
    private static let large: Int64 = 16 << 30

    private var limits = ProbeLimits([:])
    private var hasHTTP2 = false
    private var wasHTTP2 = false
    /// The upload of the slow transfer, large enough for nginx to write it into the spool.
    private var trickled: ProbeUpload?

    /// Creates a probe that calls `tell` with the finding of each check as soon as the check is made.
    ///
    /// `isStopped` is called several times a second during requests. If it returns true, the probe only cancels its
    /// uploads and ends.
    package init(
        _ question: ProbeQuestion,
        isStopped: @escaping () -> Bool,
        tell: @escaping (Finding) -> Void
    ) {
        self.question = question
        self.isStopped = isStopped
        self.tell = tell
        requests = ProbeRequests(question, isStopped: isStopped)
    }

    /// Runs all checks, then cancels the uploads that they created.
    package func run() {
        defer { tell(requests.cancelAll().finding) }
        guard let first = reach(), nodes(first) else { return }
        let checks = [
            { self.streaming() }, { self.interim() }, { self.cut() },
            { self.receive() }, { self.size() },
            { self.tell(LocationSeen(location: first.location, url: self.question.url).finding) },
            { self.names() }, { self.errors(first) }, { self.longField(first) }, { self.speed() },
            { self.silence() },
            { self.crossOrigin() },
            { self.tus(first) },
        ]
        for check in checks where !isStopped() { check() }
    }

    // MARK: Connection and creation

    /// Connects and creates the first upload; returns nil if this fails.
    private func reach() -> ProbeUpload? {
        var seen = ReachSeen(isSecure: question.url.isSecure, asked: question.versions)
        var connection = requests.connect(wantsNewestTLS: question.url.isSecure)
        if question.url.isSecure {
            seen.tls = "TLS 1.3"
            if connection.fault?.kind == .noTLS {
                connection = requests.connect(wantsNewestTLS: false)
                seen.tls = "TLS 1.2"
            }
        }
        if let fault = connection.fault {
            seen.fault = fault
            tell(seen.finding)
            return nil
        }
        var (answer, upload, version) = begin()
        if GatewaySeen(answer: answer, url: question.url, version: version).isElsewhere,
            !isStopped()
        {
            Thread.pause(Self.reloading)
            (answer, upload, version) = begin()
        }
        seen.server = answer[.server]
        // The first creation used the first version of HTTP to test.
        if question.versions == [.http2] {
            seen.hasHTTP2 = answer.head.map { _ in wasHTTP2 }
        } else if question.versions.contains(.http2) {
            seen.hasHTTP2 = question.url.isSecure ? speaksHTTP2() : false
        }
        hasHTTP2 = seen.hasHTTP2 ?? false
        tell(seen.finding)
        guard seen.finding.level != .failure, !isStopped() else { return nil }
        // The shipped nginx closes the connection of a creation if the gateway is not running.
        let options =
            answer.head == nil ? ProbeAnswer(requests.send(.options, question.url.target)) : nil
        let gateway = GatewaySeen(
            answer: answer,
            options: options,
            url: question.url,
            version: version,
            login: ProbeLogin(question.fields)
        )
        tell(gateway.finding)
        if gateway.wantsLogin || gateway.isTaken, !isStopped() {
            login(isAsked: gateway.wantsLogin)
        }
        limits = ProbeLimits(answer.head?.fields ?? [:])
        return gateway.isTaken ? upload : nil
    }

    private func login(isAsked: Bool) {
        guard isAsked || question.fields.contains(.authorization) else {
            return tell(.skipped("login", "no login is required"))
        }
        tell(LoginSeen(answer: ProbeAnswer(requests.createByUnknown())).finding)
    }

    /// Creates an upload in the newest interop version that the probe and the gateway share.
    private func begin() -> (answer: ProbeAnswer, upload: ProbeUpload?, version: Int?) {
        var answer = ProbeAnswer(head: nil)
        // Versions before 6 have no `Upload-Limit`.
        for version in (6...Dialect.versions.upperBound).reversed() {
            requests.interopVersion = version
            let (transfer, upload) = requests.create()
            wasHTTP2 = transfer.isHTTP2
            answer = ProbeAnswer(transfer)
            guard answer.status == 201, let upload else { return (answer, nil, nil) }
            if answer[.uploadDraftInteropVersion] == String(version) {
                return (answer, upload, version)
            }
            requests.cancel(upload)
        }
        return (answer, nil, nil)
    }

    /// Returns whether the server responds over HTTP/2, or nil if it does not respond.
    private func speaksHTTP2() -> Bool? {
        let transfer = requests.create(version: .http2).transfer
        return transfer.head.map { _ in transfer.isHTTP2 }
    }

    /// Checks that requests for an upload reach the node that received the upload.
    ///
    /// - Returns: false if the other checks would fail because of the nodes but report a different reason.
    private func nodes(_ first: ProbeUpload) -> Bool {
        guard NodesSeen.node(in: first.target) != nil else { return true }
        // Enough uploads to reach two nodes with high probability.
        let others = (1..<Self.creations).compactMap { _ in
            isStopped() ? nil : requests.create().upload
        }
        let seen = NodesSeen(
            ([first] + others).map { upload in
                (upload.target, ProbeAnswer(requests.send(.options, upload.target)))
            }
        )
        for upload in others { requests.cancel(upload) }
        guard !isStopped() else { return false }
        tell(seen.finding)
        return seen.finding.level != .failure
    }

    private func names() {
        let url = question.url
        guard url.path.hasSuffix("/") else {
            return tell(.skipped("names", "the URL does not end in /"))
        }
        func creation(_ ending: String) -> (name: String, answer: ProbeAnswer) {
            let name = "spoolgate-probe\(ending)"
            let (transfer, upload) = requests.create(at: url.path + name)
            // The upload resource's path begins with the file name, so another location may receive the cancellation.
            let end = upload.map { requests.cancel($0) }
            let answer = end.map { $0.code == nil && $0.status != 204 ? $0 : nil } ?? nil
            return (name, answer ?? ProbeAnswer(transfer))
        }
        let plain = creation("").answer
        guard NamesSeen.isTaken(plain) else {
            return tell(.skipped("names", "the gateway serves only this URL"))
        }
        let others = NamesSeen.endings.compactMap { isStopped() ? nil : creation($0) }
        guard !isStopped() else { return }
        tell(NamesSeen(others, below: url.path).finding)
    }

    // MARK: Content

    private func streaming() {
        guard let upload = requests.create().upload else {
            return tell(notCreated("streaming"))
        }
        trickled = upload
        var seen: StreamingSeen?
        let requests = requests
        let content = ProbeContent.broken(
            after: Self.part,
            over: Self.trickling,
            settling: Self.settling
        ) { transfer in
            let after = transfer.elapsed
            let answer = requests.offset(of: upload)
            seen = StreamingSeen(
                sent: transfer.sent,
                arrived: answer.offset,
                after: after,
                answer: answer
            )
            return .reset
        }
        let transfer = requests.append(to: upload, at: 0, content)
        guard !isStopped() else { return }
        let ended = StreamingSeen(
            sent: transfer.sent,
            arrived: nil,
            after: transfer.elapsed,
            answer: ProbeAnswer(transfer)
        )
        tell((seen ?? ended).finding)
    }

    private func cut() {
        guard let upload = requests.create().upload else { return tell(notCreated("cut")) }
        let content = ProbeContent.broken(after: Self.part, settling: Self.settling) { _ in .reset }
        let transfer = requests.append(to: upload, at: 0, content)
        guard !isStopped() else { return }
        let kept = requests.offset(of: upload).offset
        let resumed = kept.map { offset in
            requests.append(to: upload, at: offset, ProbeContent.plain(limits.fitting(Self.small)))
        }
        tell(
            CutSeen(
                sent: transfer.sent,
                kept: kept,
                resumed: resumed.map { ProbeAnswer($0) },
                answer: ProbeAnswer(transfer)
            ).finding
        )
    }

    private func receive() {
        guard let ask = question.contentPath else {
            return tell(.skipped("receive", "not tested (--local)"))
        }
        let name = trickled?.target.split(separator: "/").last
        let path = name.flatMap { UploadID($0) }.flatMap(ask)
        tell(ReceiveSeen(path: path, nginx: question.lane).finding)
    }

    private func size() {
        guard requests.version == .http1 else {
            return tell(.skipped("size", "tested over HTTP/1.1 only"))
        }
        let length = min(
            limits.maxSize ?? Self.large,
            limits.maxAppendSize ?? Self.large,
            Self.large
        )
        let (creation, upload) = requests.create(length: length)
        guard let upload else {
            let answer = ProbeAnswer(creation)
            return tell(SizeSeen(declared: length, isWelcome: false, answer: answer).finding)
        }
        var isWelcome = false
        let transfer = requests.append(
            to: upload,
            at: 0,
            ProbeContent.none(of: length) { isWelcome = true },
            fields: [.expect: "100-continue"]
        )
        guard !isStopped() else { return }
        let answer = ProbeAnswer(transfer)
        tell(SizeSeen(declared: length, isWelcome: isWelcome, answer: answer).finding)
    }

    private func speed() {
        var runs: [SpeedSeen.Run] = []
        for version in ClientRequest.Version.allCases where isSpoken(version) && !isStopped() {
            guard let upload = requests.create().upload else { return tell(notCreated("speed")) }
            var begun = ContinuousClock.now
            let size = limits.fitting(question.size)
            let content = ProbeContent.plain(size) { begun = .now }
            let transfer = requests.append(to: upload, at: 0, content, version: version)
            let time = ContinuousClock.now - begun
            let answer = ProbeAnswer(transfer)
            runs.append(.init(version: version, bytes: transfer.sent, time: time, answer: answer))
            requests.cancel(upload)
        }
        guard !isStopped() else { return }
        tell(SpeedSeen(runs: runs, roundTrip: requests.roundTrip ?? .zero).finding)
    }

    private func silence() {
        guard question.isThorough else { return }
        guard let upload = requests.create().upload else { return tell(notCreated("silence")) }
        var begun: ContinuousClock.Instant?
        var wasBorne = false
        let content = ProbeContent.broken(after: Self.small) { _ in
            let now = ContinuousClock.now
            begun = begun ?? now
            guard now - (begun ?? now) >= SilenceSeen.length else { return .later }
            wasBorne = true
            return .reset
        }
        _ = requests.append(to: upload, at: 0, content, timeout: SilenceSeen.length * 2)
        guard !isStopped() else { return }
        let borne = begun.map { ContinuousClock.now - $0 } ?? .zero
        tell(SilenceSeen(borne: borne, wasEnded: !wasBorne).finding)
    }

    // MARK: Protocols

    private func interim() {
        for version in question.versions where !isStopped() {
            guard isSpoken(version) else {
                tell(.skipped("104-http2", "no HTTP/2"))
                continue
            }
            let content = ProbeContent.held(
                limits.fitting(Self.small),
                for: Self.interimPatience + (requests.roundTrip ?? .zero) * 6,
                unless: isStopped
            )
            let transfer = requests.create(version: version, content: content).transfer
            let first = transfer.interim.first { $0.head.status.code == 104 }
            let answer = ProbeAnswer(transfer)
            tell(InterimSeen(version: version, first: first, answer: answer).finding)
        }
    }

    private func errors(_ upload: ProbeUpload) {
        let content = { ProbeContent.plain(1_000) }
        let conflict = requests.append(to: upload, at: 7, content())
        guard let gone = requests.create().upload else { return tell(notCreated("errors")) }
        requests.cancel(gone)
        let unknown = requests.append(to: gone, at: 0, content())
        guard !isStopped() else { return }
        tell(ErrorsSeen(conflict: ProbeAnswer(conflict), unknown: ProbeAnswer(unknown)).finding)
    }

    private func longField(_ upload: ProbeUpload) {
        var long = upload
        let field = HTTPField(
            name: .made("x-spoolgate-probe"),
            value: String(repeating: "x", count: Self.longField)
        )
        long.fields.append(field)
        let answer = requests.offset(of: long)
        guard !isStopped() else { return }
        tell(LongFieldSeen(size: Self.longField, answer: answer).finding)
    }

    private func crossOrigin() {
        guard let origin = question.origin else {
            return tell(.skipped("cors", "not tested (--origin)"))
        }
        let (creation, upload) = requests.create(fields: [.origin: origin])
        // At the creation's URL the upstream might respond instead of the gateway.
        guard let upload else { return tell(notCreated("cors")) }
        let asking: HTTPFields = [
            .origin: origin, .accessControlRequestMethod: "PATCH",
            .accessControlRequestHeaders:
                "content-type,upload-complete,upload-draft-interop-version,upload-offset",
        ]
        let preflight = requests.send(.options, upload.target, asking, isAnonymous: true)
        guard !isStopped() else { return }
        let seen = CrossOriginSeen(
            origin: origin,
            preflight: ProbeAnswer(preflight),
            creation: ProbeAnswer(creation)
        )
        tell(seen.finding)
    }

    private func tus(_ upload: ProbeUpload) {
        let options = requests.send(.options, upload.target)
        var seen = TusSeen(options: ProbeAnswer(options), creation: nil, retrieval: nil)
        if seen.isSpoken {
            let (creation, upload) = requests.createByTus(length: Self.small)
            seen.creation = ProbeAnswer(creation)
            seen.retrieval = upload.map { requests.offset(of: $0) }
        }
        guard !isStopped() else { return }
        tell(seen.finding)
    }

    private func isSpoken(_ version: ClientRequest.Version) -> Bool {
        question.versions.contains(version) && (version == .http1 || hasHTTP2)
    }

    private func notCreated(_ name: String) -> Finding {
        .failure(
            name,
            "another upload could not be created",
            ["journalctl -u spoolgate  (shows the reason, such as clients.maximum-uploads)"]
        )
    }
}
