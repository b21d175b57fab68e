// A gateway whose authorizer and upstream are recorded, and the rules for every request and route.
//
// Upload content is read only after the authorizer was asked; a refused client's is neither read nor forwarded; at most
// `max-size` bytes are forwarded; a route that needs the whole upload forwards nothing of an incomplete one.

import Foundation
import HTTPTypes
import SpoolgatePosix
import SpoolgateSpool
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@testable import SpoolgateRequests
@testable import SpoolgateSettings

final class GateWorld {
    struct Places: Sendable {
        var authorizer: ServiceURL
        var upstream: String
        var drop: String
        var handover: String
        var key: String
        var credentials: String
    }

    enum Trial: CaseIterable {
        case granted
        case notAuthorized
        case anonymous
        case cut
        case tooLarge
        case tooLargeWithoutLength
    }

    private enum Event: Equatable {
        case asked
        case read
    }

    let places: Places
    private let test: GatewayUnderTest
    private let upstream: LoopbackOrigin
    private let authorizer: LoopbackOrigin
    private let trace = Monitor<[Event]>([])
    private let grants = Monitor(true)
    private(set) var requests = 0
    private var forbidden: Set<String> = []

    init() throws {
        upstream = try LoopbackOrigin { connection in
            while let request = try connection.receiveRequest(keptContent: 0) {
                try connection.response(
                    "201 Created",
                    content: "",
                    hasContent: request.method != "HEAD"
                )
            }
        }
        authorizer = try LoopbackOrigin(remembers: false) { [trace, grants] connection in
            while try connection.receiveRequest() != nil {
                trace.update { $0.append(.asked) }
                try connection.response(grants.update { $0 } ? "204 No Content" : "403 Forbidden")
            }
        }
        test = try GatewayUnderTest(upstream.target)
        places = Places(
            authorizer: try ServiceURL("\(authorizer.base)/may"),
            upstream: upstream.base,
            drop: test.delivered,
            handover: "\(test.root)/handover",
            key: "\(test.root)/key",
            credentials: "\(test.root)/credentials"
        )
        try FileManager.default.createDirectory(
            atPath: places.handover,
            withIntermediateDirectories: true
        )
        for (path, text) in [
            (places.key, String(repeating: "k", count: 64)),
            (places.credentials, "A\nB\n"),
        ] {
            try Data(text.utf8).write(to: URL(fileURLWithPath: path))
            try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: path)
        }
    }

    /// The route with these settings; nil if they contradict each other.
    func route(_ settings: GateSetting...) -> RouteSettings? { route(settings) }

    func route(_ settings: [GateSetting]) -> RouteSettings? {
        var route = RouteSettings()
        route.upstream.targets = [upstream.target]
        route.limits.minSize = 100
        for setting in settings { setting.change(&route, places) }
        return route.contradiction == nil ? route : nil
    }

    /// Records each broken rule as an issue.
    func check(_ request: GateRequest, _ trial: Trial, on settings: RouteSettings) {
        var route = settings
        var (size, owner) = (1_000, Optional("alice"))
        grants.update { $0 = trial != .notAuthorized }
        switch trial {
        case .granted, .notAuthorized: route.authorization.url = places.authorizer
        case .anonymous: (route.anonymous, owner) = (.refuse, nil)
        case .cut: break
        case .tooLarge, .tooLargeWithoutLength: (size, route.limits.maxSize) = (3_000, 900)
        }
        test.reload { $0.routes[RouteSettings.defaultName] = route }
        trace.update { $0 = [] }
        let target = "/files/t\(requests)t"
        let exchange = request.exchange(
            on: target,
            size,
            saysLength: trial != .tooLargeWithoutLength,
            isCut: trial == .cut,
            owner: owner,
            trace: { [trace] in trace.update { $0.append(.read) } }
        )
        let record = test.serve(exchange)
        requests += 1
        if let fault = fault(request, trial, route, record, target) {
            Issue.record("\(trial): \(request): \(fault); \(record.events); \(route)")
        }
        // The upstream may read an aborted attempt much later, so forbidden targets stay.
        upstream.forget { [forbidden] request in !forbidden.contains(Self.name(of: request)) }
        clean()
    }

    private func fault(
        _ request: GateRequest,
        _ trial: Trial,
        _ route: RouteSettings,
        _ record: ScriptedExchange.Record,
        _ target: String
    ) -> String? {
        let events = trace.update { $0 }
        let isRead = events.contains(.read)
        let passed = requests(to: target).map(\.contentLength)
        switch trial {
        case .granted:
            guard request.isUpload, let read = events.firstIndex(of: .read) else { return nil }
            let asked = events.firstIndex(of: .asked) ?? .max
            return asked < read ? nil : "content was read before authorization"
        case .notAuthorized, .anonymous:
            guard request.isUpload else { return nil }
            forbidden.insert(target)
            if isRead { return "content was read" }
            if !passed.isEmpty || hasDrop { return "it reached the upstream" }
            return (400..<500).contains(record.status ?? 0) ? nil : "it was not refused"
        case .cut:
            guard request.isUpload, route.needsWhole else { return nil }
            forbidden.insert(target)
            return passed.isEmpty && !hasDrop ? nil : "a part reached the upstream"
        case .tooLarge, .tooLargeWithoutLength:
            if hasDrop { return "it reached the upstream" }
            let maximum = Int(route.limits.maxSize)
            return passed.allSatisfy { $0 <= maximum } ? nil : "\(passed) bytes were forwarded"
        }
    }

    /// The upstream's requests for a client's target or its object.
    private func requests(to target: String) -> [LoopbackOrigin.Request] {
        upstream.all.filter { Self.name(of: $0) == target }
    }

    /// The client's target, also from an object's name (`<identity>-t1t`).
    private static func name(of request: LoopbackOrigin.Request) -> String {
        "/files/\(request.target.split { "/-".contains($0) }.last ?? "")"
    }

    /// Checks again that no forbidden target arrived.
    func finish() {
        let seen = upstream.all.map(Self.name).filter(forbidden.contains)
        if !seen.isEmpty { Issue.record("reached the upstream later: \(seen)") }
    }

    private var hasDrop: Bool { ((try? test.drops()) ?? []).isEmpty == false }

    private func clean() {
        for summary in (try? test.summaries()) ?? [] {
            guard
                let upload = try? test.spool.lock(
                    summary.id,
                    until: .after(.seconds(60)),
                    requestRelease: {}
                )
            else { continue }
            try? upload.remove()
            upload.unlock()
        }
        for path in [places.drop, places.handover] {
            for name in (try? FileManager.default.contentsOfDirectory(atPath: path)) ?? [] {
                try? FileManager.default.removeItem(atPath: "\(path)/\(name)")
            }
        }
    }
}
