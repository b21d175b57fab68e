// Everything that delivers: the settings in force with their routes, the bounds on attempts, the queue.
//
// A request that completes an upload delivers it here, and so do the queue's threads. Invariant: whoever
// delivers, the same rules hold.

import SpoolgateCrypto
package import SpoolgateExchange
package import SpoolgateJournal
import SpoolgatePosix
package import SpoolgateSettings
package import SpoolgateSpool
package import SpoolgateUploadProtocol

/// The deliveries of one process.
///
/// Any thread.
package final class Deliveries: Sendable {
    /// What the gateway calls itself in the requests that it sends.
    package let name = GatewayName(token: RandomToken.make())
    /// Where uploads lie.
    package let spool: Spool
    /// Where it is told what happens to uploads.
    package let journal: Journal
    /// Who may be at work, and who may wait.
    package let admission: Admission
    /// What waits for its next attempt.
    package let queue = DeliveryQueue()
    let slots: DeliverySlots
    let holdSizes = HoldSizes()
    let upkeep = Upkeep()
    private let configuration: Monitor<Configuration>

    /// The settings in force and the routes made from them.
    ///
    /// One reference, so that a request has the lock for the time of one retain.
    package final class Configuration: Sendable {
        /// The settings.
        package let settings: Settings
        /// The routes by name.
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
                    metrics: journal.metrics
                ) { journal.log.upstreamSkipped(route: name, reason: $0) }
            }
        }
    }

    /// Makes the deliveries over an opened and recovered spool; nothing is delivered before `start`.
    ///
    /// - Parameters:
    ///   - settings: the settings in force.
    ///   - spool: the spool.
    ///   - log: the log.
    ///   - admission: the bounds on requests, of which waiting ones are kept here.
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

    /// The configuration in force.
    package var current: Configuration { configuration.updateQuietly { $0 } }

    /// What time it is.
    package var clock: SpoolClock { spool.clock }

    /// Puts new settings in force for the requests and attempts that begin from now on.
    package func reload(_ settings: Settings) {
        configuration.updateQuietly {
            $0 = Configuration(settings, of: name, keeping: $0, journal)
        }
        slots.setBounds(current.bounds)
        journal.events.reload(settings)
        // The pause before the next run was the old settings', and uploads may have a route again.
        queue.askForRun()
    }

    var log: Log { journal.log }
}
