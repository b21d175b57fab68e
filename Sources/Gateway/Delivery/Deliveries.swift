// The state shared by all deliveries: the settings with their routes, the limits on attempts, and the queue.
//
// Invariant: the same rules apply to completing requests and to the queue's threads.

import SpoolgateCrypto
package import SpoolgateExchange
package import SpoolgateJournal
import SpoolgatePosix
package import SpoolgateSettings
package import SpoolgateSpool
package import SpoolgateUploadProtocol

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
                    metrics: journal.metrics
                ) { journal.log.upstreamSkipped(route: name, reason: $0) }
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
        queue.askForRun()
    }

    var log: Log { journal.log }
}
