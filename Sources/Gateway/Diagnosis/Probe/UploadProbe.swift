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
    private let options: ProbeOptions
    private let requests: ProbeRequests
    private let isStopped: () -> Bool
    private let report: (Finding) -> Void

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

    /// Creates a probe that calls `report` with the finding of each check as soon as the check is made.
    ///
    /// `isStopped` is called several times a second during requests. If it returns true, the probe only cancels its
    /// uploads and ends.
    package init(
        _ options: ProbeOptions,
        isStopped: @escaping () -> Bool,
        report: @escaping (Finding) -> Void
    ) {
        self.options = options
        self.isStopped = isStopped
        self.report = report
        requests = ProbeRequests(options, isStopped: isStopped)
    }

    /// Runs all checks, then cancels the uploads that they created.
    package func run() {
        defer { report(requests.cancelAll().finding) }
        guard let first = reach(), nodes(first) else { return }
        let checks: [() -> Void] = [
            streaming, interim, cut, receive, size, { self.location(first) }, names,
            { self.errors(first) }, { self.longField(first) }, speed, silence, crossOrigin,
            { self.tus(first) },
        ]
        for check in checks where !isStopped() { check() }
    }

    /// Reports the finding of a check unless the probe was stopped during the check, whose result then means nothing.
    private func conclude(_ finding: Finding) {
        if !isStopped() { report(finding) }
    }

    /// Creates an upload for a check; reports and returns nil if this fails.
    private func upload(for check: String) -> ProbeUpload? {
        if let upload = requests.create().upload { return upload }
        report(notCreated(check))
        return nil
    }

    // MARK: Connection and creation

    /// Connects and creates the first upload; returns nil if this fails.
    private func reach() -> ProbeUpload? {
        var seen = ReachEvidence(isSecure: options.url.isSecure, versions: options.versions)
        var connection = requests.connect(wantsNewestTLS: options.url.isSecure)
        if options.url.isSecure {
            seen.tls = "TLS 1.3"
            if connection.fault?.kind == .noTLS {
                connection = requests.connect(wantsNewestTLS: false)
                seen.tls = "TLS 1.2"
            }
        }
        if let fault = connection.fault {
            seen.fault = fault
            report(seen.finding)
            return nil
        }
        var (response, upload, version) = begin()
        if [404, 405].contains(response.status), response.code == nil, !isStopped() {
            Thread.pause(Self.reloading)
            (response, upload, version) = begin()
        }
        seen.server = response[.server]
        // The first creation used the first version of HTTP to test.
        if options.versions == [.http2] {
            seen.hasHTTP2 = response.head.map { _ in wasHTTP2 }
        } else if options.versions.contains(.http2) {
            seen.hasHTTP2 = options.url.isSecure ? speaksHTTP2() : false
        }
        hasHTTP2 = seen.hasHTTP2 ?? false
        report(seen.finding)
        guard seen.finding.level != .failure, !isStopped() else { return nil }
        // The shipped nginx closes the connection of a creation if the gateway is not running.
        let optionsResponse =
            response.head == nil ? ProbeResponse(requests.send(.options, options.url.target)) : nil
        let gateway = GatewayEvidence(
            response: response,
            options: optionsResponse,
            url: options.url,
            version: version,
            login: ProbeLogin(options.fields)
        )
        report(gateway.finding)
        if gateway.wantsLogin || gateway.isTaken, !isStopped() {
            login(isRequested: gateway.wantsLogin)
        }
        limits = ProbeLimits(response.head?.fields ?? [:])
        return gateway.isTaken ? upload : nil
    }

    private func login(isRequested: Bool) {
        guard isRequested || options.fields.contains(.authorization) else {
            return report(.skipped("login", "no login is required"))
        }
        report(LoginEvidence(response: ProbeResponse(requests.createByUnknown())).finding)
    }

    /// Creates an upload in the newest interop version that the probe and the gateway share.
    private func begin() -> (response: ProbeResponse, upload: ProbeUpload?, version: Int?) {
        var response = ProbeResponse(head: nil)
        // Versions before 6 have no `Upload-Limit`.
        for version in (6...Dialect.versions.upperBound).reversed() {
            requests.interopVersion = version
            let (transfer, upload) = requests.create()
            wasHTTP2 = transfer.isHTTP2
            response = ProbeResponse(transfer)
            guard response.status == 201, let upload else { return (response, nil, nil) }
            if response[.uploadDraftInteropVersion] == String(version) {
                return (response, upload, version)
            }
            requests.cancel(upload)
        }
        return (response, nil, nil)
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
        guard NodesEvidence.node(in: first.target) != nil else { return true }
        // Enough uploads to reach two nodes with high probability.
        let others = (1..<Self.creations).compactMap { _ in
            isStopped() ? nil : requests.create().upload
        }
        let seen = NodesEvidence(
            ([first] + others).map { upload in
                (upload.target, ProbeResponse(requests.send(.options, upload.target)))
            }
        )
        for upload in others { requests.cancel(upload) }
        conclude(seen.finding)
        return !isStopped() && seen.finding.level != .failure
    }

    private func location(_ upload: ProbeUpload) {
        report(LocationEvidence(location: upload.location, url: options.url).finding)
    }

    private func names() {
        let url = options.url
        guard url.path.hasSuffix("/") else {
            return report(.skipped("names", "the URL does not end in /"))
        }
        func creation(_ ending: String) -> (name: String, response: ProbeResponse) {
            let name = "spoolgate-probe\(ending)"
            let (transfer, upload) = requests.create(at: url.path + name)
            // The upload resource's path begins with the file name, so another location may receive the cancellation.
            let end = upload.map { requests.cancel($0) }
            let response = end.map { $0.code == nil && $0.status != 204 ? $0 : nil } ?? nil
            return (name, response ?? ProbeResponse(transfer))
        }
        let plain = creation("").response
        guard NamesEvidence.isTaken(plain) else {
            return report(.skipped("names", "the gateway serves only this URL"))
        }
        let others = NamesEvidence.endings.compactMap { isStopped() ? nil : creation($0) }
        conclude(NamesEvidence(others, below: url.path).finding)
    }

    // MARK: Content

    private func streaming() {
        guard let upload = upload(for: "streaming") else { return }
        trickled = upload
        var seen: StreamingEvidence?
        let requests = requests
        let content = ProbeContent.broken(
            after: Self.part,
            over: Self.trickling,
            settling: Self.settling
        ) { transfer in
            let after = transfer.elapsed
            let response = requests.offset(of: upload)
            seen = StreamingEvidence(
                sent: transfer.sent,
                arrived: response.offset,
                after: after,
                response: response
            )
            return .reset
        }
        let transfer = requests.append(to: upload, at: 0, content)
        let ended = StreamingEvidence(
            sent: transfer.sent,
            after: transfer.elapsed,
            response: ProbeResponse(transfer)
        )
        conclude((seen ?? ended).finding)
    }

    private func cut() {
        guard let upload = upload(for: "cut") else { return }
        let content = ProbeContent.broken(after: Self.part, settling: Self.settling) { _ in .reset }
        let transfer = requests.append(to: upload, at: 0, content)
        guard !isStopped() else { return }
        let kept = requests.offset(of: upload).offset
        let resumed = kept.map { offset in
            requests.append(to: upload, at: offset, ProbeContent.plain(limits.fitting(Self.small)))
        }
        report(
            CutEvidence(
                sent: transfer.sent,
                kept: kept,
                resumed: resumed.map { ProbeResponse($0) },
                response: ProbeResponse(transfer)
            ).finding
        )
    }

    private func receive() {
        guard let contentPath = options.contentPath else {
            return report(.skipped("receive", "not tested (--local)"))
        }
        let name = trickled?.target.split(separator: "/").last
        let path = name.flatMap { UploadID($0) }.flatMap(contentPath)
        report(ReceiveEvidence(path: path, nginx: options.lane).finding)
    }

    private func size() {
        guard requests.version == .http1 else {
            return report(.skipped("size", "tested over HTTP/1.1 only"))
        }
        let length = limits.fitting(Self.large)
        let (creation, upload) = requests.create(length: length)
        var seen = SizeEvidence(declared: length, response: ProbeResponse(creation))
        guard let upload else { return report(seen.finding) }
        let transfer = requests.append(
            to: upload,
            at: 0,
            ProbeContent.none(of: length) { seen.isWelcome = true },
            fields: [.expect: "100-continue"]
        )
        seen.response = ProbeResponse(transfer)
        conclude(seen.finding)
    }

    private func speed() {
        var runs: [SpeedEvidence.Run] = []
        for version in ClientRequest.Version.allCases where isSpoken(version) && !isStopped() {
            guard let upload = upload(for: "speed") else { return }
            var begun = ContinuousClock.now
            let size = limits.fitting(options.size)
            let content = ProbeContent.plain(size) { begun = .now }
            let transfer = requests.append(to: upload, at: 0, content, version: version)
            let time = ContinuousClock.now - begun
            let response = ProbeResponse(transfer)
            runs.append(
                .init(version: version, bytes: transfer.sent, time: time, response: response)
            )
            requests.cancel(upload)
        }
        conclude(SpeedEvidence(runs: runs, roundTrip: requests.roundTrip ?? .zero).finding)
    }

    private func silence() {
        guard options.isThorough else { return }
        guard let upload = upload(for: "silence") else { return }
        var begun: ContinuousClock.Instant?
        var wasBorne = false
        let content = ProbeContent.broken(after: Self.small) { _ in
            let start = begun ?? .now
            begun = start
            wasBorne = ContinuousClock.now - start >= SilenceEvidence.length
            return wasBorne ? .reset : .later
        }
        _ = requests.append(to: upload, at: 0, content, timeout: SilenceEvidence.length * 2)
        let borne = begun.map { ContinuousClock.now - $0 } ?? .zero
        conclude(SilenceEvidence(borne: borne, wasEnded: !wasBorne).finding)
    }

    // MARK: Protocols

    private func interim() {
        for version in options.versions where !isStopped() {
            guard isSpoken(version) else {
                report(.skipped("104-http2", "no HTTP/2"))
                continue
            }
            let content = ProbeContent.held(
                limits.fitting(Self.small),
                for: Self.interimPatience + (requests.roundTrip ?? .zero) * 6,
                unless: isStopped
            )
            let transfer = requests.create(version: version, content: content).transfer
            let first = transfer.interim.first { $0.head.status.code == 104 }
            let response = ProbeResponse(transfer)
            report(InterimEvidence(version: version, first: first, response: response).finding)
        }
    }

    private func errors(_ upload: ProbeUpload) {
        let content = { ProbeContent.plain(1_000) }
        let conflict = requests.append(to: upload, at: 7, content())
        guard let gone = self.upload(for: "errors") else { return }
        requests.cancel(gone)
        let unknown = requests.append(to: gone, at: 0, content())
        conclude(ErrorsEvidence(conflict: .init(conflict), unknown: .init(unknown)).finding)
    }

    private func longField(_ upload: ProbeUpload) {
        var long = upload
        long.fields[.made("x-spoolgate-probe")] = String(repeating: "x", count: Self.longField)
        let response = requests.offset(of: long)
        conclude(LongFieldEvidence(size: Self.longField, response: response).finding)
    }

    private func crossOrigin() {
        guard let origin = options.origin else {
            return report(.skipped("cors", "not tested (--origin)"))
        }
        let (creation, upload) = requests.create(fields: [.origin: origin])
        // At the creation's URL the upstream might respond instead of the gateway.
        guard let upload else { return report(notCreated("cors")) }
        let preflightFields: HTTPFields = [
            .origin: origin, .accessControlRequestMethod: "PATCH",
            .accessControlRequestHeaders:
                "content-type,upload-complete,upload-draft-interop-version,upload-offset",
        ]
        let preflight = requests.send(.options, upload.target, preflightFields, isAnonymous: true)
        conclude(
            CrossOriginEvidence(
                origin: origin,
                preflight: ProbeResponse(preflight),
                creation: ProbeResponse(creation)
            ).finding
        )
    }

    private func tus(_ upload: ProbeUpload) {
        var seen = TusEvidence(options: ProbeResponse(requests.send(.options, upload.target)))
        if seen.isSpoken {
            let (creation, upload) = requests.createByTus(length: Self.small)
            seen.creation = ProbeResponse(creation)
            seen.retrieval = upload.map { requests.offset(of: $0) }
        }
        conclude(seen.finding)
    }

    private func isSpoken(_ version: ClientRequest.Version) -> Bool {
        options.versions.contains(version) && (version == .http1 || hasHTTP2)
    }

    private func notCreated(_ name: String) -> Finding {
        .failure(
            name,
            "another upload could not be created",
            ["journalctl -u spoolgate  (shows the reason, such as clients.maximum-uploads)"]
        )
    }
}
