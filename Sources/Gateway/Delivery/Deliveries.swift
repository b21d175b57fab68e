// The state shared by all deliveries: the settings with their routes, the limits on attempts, and the queue.
//
// Invariant: the same rules apply to completing requests and to the queue's threads.

import HTTPTypes
import SpoolgateCrypto
package import SpoolgateExchange
package import SpoolgateJournal
package import SpoolgatePosix
package import SpoolgateSettings
package import SpoolgateSpool
package import SpoolgateUploadProtocol
package import SpoolgateUpstream

/// The deliveries of one process.
///
/// Thread-safe.
package final class Deliveries: Sendable {
    /// The gateway's name in `Via` fields.
    package let name = GatewayName(token: RandomToken.make())
    package let spool: Spool
    package let journal: Journal
    package let admission: Admission
    package let queue = DeliveryQueue()
    let slots: DeliverySlots
    let holdSizes = HoldSizes()
    let upkeep = Upkeep()
    private let configuration: Monitor<Configuration>

    /// The current settings and their routes.
    ///
    /// A class, so that a reader holds the lock only to retain a reference.
    package final class Configuration: Sendable {
        package let settings: Settings
        package let routes: [String: Route]
        let bounds: DeliveryBounds

        init(
            _ settings: Settings,
            of gateway: GatewayName,
            keeping old: Configuration?,
            _ journal: Journal
        ) {
            self.settings = settings
            bounds = DeliveryBounds(settings)
            routes = settings.routes.reduce(into: [:]) { routes, named in
                let (name, route) = named
                routes[name] = Route(
                    name,
                    route,
                    of: gateway,
                    node: settings.ownerNode,
                    keeping: old?.routes[name],
                    journal
                )
            }
        }
    }

    /// Creates the deliveries for an open spool.
    ///
    /// `startQueue` starts recovery and the queue. The limits of `admission` also apply to waiting deliveries.
    package init(_ settings: Settings, spool: Spool, log: Log, admission: Admission) {
        self.spool = spool
        self.admission = admission
        let clock = spool.clock
        journal = Journal(
            log,
            Events(settings, spool: spool, log: log, by: name),
            Metrics(uptime: { clock.uptime })
        )
        let first = Configuration(settings, of: name, keeping: nil, journal)
        slots = DeliverySlots(first.bounds)
        configuration = Monitor(first)
    }

    package var current: Configuration { configuration.updateQuietly { $0 } }

    package var clock: SpoolClock { spool.clock }

    /// Applies new settings to requests and attempts that begin after this call.
    package func reload(_ settings: Settings) {
        configuration.updateQuietly {
            $0 = Configuration(settings, of: name, keeping: $0, journal)
        }
        slots.setBounds(current.bounds)
        journal.events.reload(settings)
        // The old settings scheduled the next run, and the new settings may contain routes that were missing.
        queue.requestRun()
    }

    var log: Log { journal.log }
}

// MARK: Routes

// One current route: its settings and the objects made from them.
//
// A class, because the frames of thousands of waiting requests would contain copies of a structure.

/// One route as requests and deliveries use it.
///
/// Immutable and thread-safe. A request for which the authorizer changed the settings has its own instance.
package final class Route: Sendable {
    package let name: String
    package let settings: RouteSettings
    package let gateway: GatewayName
    package let resources: UploadResources
    package let upstream: Upstream
    /// The service that authorizes uploads; nil if uploads need no authorization.
    package let authorizer: Authorizer?
    /// The command that inspects uploads; nil if uploads are not inspected.
    package let inspection: Inspection?
    package let counts: RouteMetrics

    /// Creates a route from its settings.
    ///
    /// `settings` must name at least one target. `node` is the name of the node that creates the uploads, and nil if
    /// there is only one node. The connections and counters of `old`, the previous route of this name, are kept if the
    /// settings are unchanged.
    package init(
        _ name: String,
        _ settings: RouteSettings,
        of gateway: GatewayName,
        node: String?,
        keeping old: Route?,
        _ journal: Journal
    ) {
        let metrics = journal.metrics
        self.name = name
        self.settings = settings
        self.gateway = gateway
        resources = UploadResources(prefix: settings.uploadResources, node: node)
        upstream =
            old.flatMap { $0.upstream.settings == settings.upstream ? $0.upstream : nil }
            ?? Upstream(settings.upstream) { journal.log.upstreamSkipped(route: name, reason: $0) }
        authorizer =
            old?.authorizer?.settings == settings.authorization
            ? old?.authorizer
            : Authorizer(settings.authorization, metrics.authorizerTimes, by: gateway)
        inspection =
            old?.inspection?.settings == settings.inspection
            ? old?.inspection : Inspection(settings.inspection, metrics.inspectionTimes)
        counts = metrics[name]
        // Failures of another upstream do not apply to this upstream.
        if old?.upstream.settings != settings.upstream { counts.health.reset() }
    }

    private init(_ route: Route, _ settings: RouteSettings) {
        name = route.name
        gateway = route.gateway
        upstream = route.upstream
        authorizer = route.authorizer
        inspection = route.inspection
        counts = route.counts
        self.settings = settings
        resources = route.resources
    }

    package var targets: [String] { settings.upstream.targets.map(\.text) }

    /// The place of a redirect that no setting names and that was not taken for success; nil if none occurred.
    package var lostRedirect: String? { counts.lostRedirect(under: settings.upstream.redirects) }

    /// Returns a copy with changed settings, which shares the objects made from the old settings.
    package func changed(_ change: (inout RouteSettings) -> Void) -> Route {
        var settings = settings
        change(&settings)
        return Route(self, settings)
    }

    /// Whether the client of a complete upload received 202, and therefore does not receive the upstream's response.
    ///
    /// The record says so even after `reply` has changed, unless version 0.1.0 wrote it.
    package func hasAccepted(_ upload: Upload) -> Bool {
        upload.accepted != nil || hasAccepted(nextAttempt: upload.nextAttempt)
            || settings.reply == .accepted && upload.state.phase == .failed
    }

    /// Whether a queued upload's client received 202.
    ///
    /// - Parameter nextAttempt: the time of the upload's next attempt; nil if the upload is not in the queue.
    /// - Returns: true if the queue delivers the upload and no client waits for it.
    package func hasAccepted(nextAttempt: WallTime?) -> Bool {
        settings.reply == .accepted && nextAttempt != nil
    }
}

// MARK: Redirects

extension Route {
    /// Logs a followed redirect that no list names, because it may lead to a login.
    func noteFollowed(_ target: String, from origin: String, _ log: Log) {
        let head = ResponseHead(status: .temporaryRedirect, fields: [.location: target])
        let rules = settings.upstream.redirects
        guard let redirection = Redirection(head, from: origin, hosts: [], rules) else { return }
        note(redirection, status: head.status.code, log)
    }

    /// Counts and logs a redirect that no list names.
    func note(_ redirection: Redirection, status: Int, _ log: Log) {
        // No setting makes an answer of a request to repeat the content at another host.
        guard !redirection.isListed, let place = redirection.place,
            redirection.kind == .response || (301...303).contains(status)
        else { return }
        let rules = settings.upstream.redirects
        counts.noteRedirect(redirection, to: place, under: rules, status: status, route: name, log)
    }
}
