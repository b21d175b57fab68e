// The limits on threads, requests and uploads, computed from the settings.

package import SpoolgateExchange
package import SpoolgateSettings
import SpoolgateSpool

extension ThreadBudget {
    /// Creates the budget that the settings specify.
    package init(_ settings: Settings) {
        self.init(maximum: settings.maximumThreads, reserve: 64)
    }
}

extension RequestBounds {
    /// A limit that is not set is derived from the number of threads.
    init(_ settings: Settings, _ threads: ThreadBudget) {
        self.init(
            total: threads.maximum,
            reserve: threads.reserve,
            ofClient: Self.ofClient(settings, half: max(1, threads.maximum / 2)),
            waitingOfClient: max(1, threads.maximum / 4),
            waiting: max(1, threads.maximum / 2),
            reserveOfClient: max(1, threads.reserve / 4),
            atDoor: ThreadBudget.turningAway / 2
        )
    }

    private static func ofClient(_ settings: Settings, half: Int) -> Int {
        let set = settings.clients.maximumConcurrent
        return set == 0 ? .max : set ?? half
    }
}

extension UploadBounds {
    /// In the settings, 0 means no limit.
    init(_ settings: Settings) {
        let ofClient = settings.clients.maximumUploads
        self.init(
            total: settings.maximumUploads == 0 ? nil : settings.maximumUploads,
            ofClient: ofClient == 0 ? nil : ofClient
        )
    }
}
