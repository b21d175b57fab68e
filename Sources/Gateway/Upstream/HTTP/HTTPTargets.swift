// The targets of one upstream over HTTP.
//
// Invariant: the next target is tried only if no byte of the request can have been sent.

import SpoolgateCurl
import SpoolgatePosix

/// The targets of one upstream over HTTP.
///
/// Thread-safe. Keeps its connections open and reuses them.
final class HTTPTargets: UpstreamAccess {
    private let places: [Place]
    private let order: TargetOrder
    private let settings: UpstreamSettings
    private let skipped: @Sendable (String) -> Void

    private struct Place {
        let location: UpstreamLocation
        let connections = ConnectionPool()
    }

    /// Creates the targets at one or more locations, which are tried in this order.
    ///
    /// `skipped` is called with one sentence of reasons if an attempt reached a target only after others failed.
    init(
        _ locations: [UpstreamLocation],
        _ settings: UpstreamSettings,
        skipped: @escaping @Sendable (String) -> Void
    ) {
        precondition(!locations.isEmpty, "an upstream needs a target")
        places = locations.map { Place(location: $0) }
        order = TargetOrder(count: places.count)
        self.settings = settings
        self.skipped = skipped
    }

    /// Sends one request to the first target that is reached, as `Upstream.attempt` describes.
    func attempt(_ request: UpstreamRequest, sink: any ResponseSink) -> AttemptOutcome {
        var reasons: [String] = []
        var allTimedOut = true
        for index in order.indices() {
            let location = places[index].location
            guard let connection = places[index].connections.take() else {
                reasons.append("not enough memory for a connection to \(location.name)")
                return .notTried(reason: Self.sentence(reasons))
            }
            let attempt = HTTPAttempt(
                request,
                to: location,
                settings: settings,
                over: connection,
                sink: sink
            )
            let outcome = attempt.run()
            if attempt.mayKeepConnection { places[index].connections.giveBack(connection) }
            if case .notTried(let reason) = outcome {
                reasons.append(reason)
                return .notTried(reason: Self.sentence(reasons))
            }
            guard case .notReached(let reason, let timedOut) = outcome else {
                if attempt.wasTried { order.wasReached(index) }
                if !reasons.isEmpty { skipped(Self.sentence(reasons)) }
                return outcome
            }
            reasons.append(reason)
            allTimedOut = allTimedOut && timedOut
            // An error in the request itself applies to all targets.
            guard attempt.wasTried else { break }
            order.wasNotReached(index)
            guard attempt.canGoElsewhere else { break }
        }
        return .notReached(reason: Self.sentence(reasons), timedOut: allTimedOut)
    }

    private static func sentence(_ reasons: [String]) -> String {
        reasons.joined(separator: "; and ")
    }
}

extension UpstreamLocation {
    func endpoint(_ settings: UpstreamSettings) -> CurlEndpoint {
        var endpoint = CurlEndpoint(
            url: url,
            socket: socket,
            isSecure: isSecure,
            connectTimeout: settings.connectTimeout
        )
        endpoint.tls = settings.tls
        return endpoint
    }
}

// MARK: Order

// The order in which an upstream's targets are tried: as configured, but recently unreachable targets last.
//
// Invariant: every order contains every target once.

/// The order of one upstream's targets, derived from the results of attempts.
///
/// Thread-safe.
final class TargetOrder: Sendable {
    /// How long an unreachable target is tried last.
    static let avoidance = Duration.seconds(10)

    /// Until when each target is tried last, by index; nil if the target was reached or never tried.
    private let avoidedUntil: Monitor<[Deadline?]>
    private let avoidance: Duration
    private let count: Int

    init(count: Int, avoidance: Duration = TargetOrder.avoidance) {
        avoidedUntil = Monitor(Array(repeating: nil, count: count))
        self.avoidance = avoidance
        self.count = count
    }

    /// The indices of all targets, in the order in which one attempt tries them.
    ///
    /// An unreachable target whose time has expired returns to its place for this attempt only, so that the target
    /// delays one attempt instead of all.
    func indices() -> [Int] {
        guard count > 1 else { return [0] }
        return avoidedUntil.update { avoided in
            guard avoided.contains(where: { $0 != nil }) else { return Array(avoided.indices) }
            let due = avoided.indices.first { avoided[$0]?.hasPassed ?? false }
            let last = avoided.indices.filter { avoided[$0] != nil && $0 != due }
            if let due { avoided[due] = .after(avoidance) }
            return avoided.indices.filter { !last.contains($0) } + last
        }
    }

    func wasReached(_ index: Int) {
        guard count > 1 else { return }
        avoidedUntil.update { $0[index] = nil }
    }

    func wasNotReached(_ index: Int) {
        avoidedUntil.update { $0[index] = .after(avoidance) }
    }
}
