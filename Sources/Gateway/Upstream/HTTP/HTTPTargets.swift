// The targets of one upstream over HTTP.
//
// Invariant: the next target is tried only if no byte of the request can have been sent.

import SpoolgateCurl
import SpoolgatePosix

/// The targets of one upstream over HTTP.
///
/// Thread-safe. Keeps its connections open and reuses them.
final class HTTPTargets: Sendable {
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
        endpoint.certificateAuthority = settings.certificateAuthority
        endpoint.clientCertificate = settings.clientCertificate
        endpoint.clientKey = settings.clientKey
        return endpoint
    }
}
