// The bounds that the settings set, in numbers.

package import SpoolgateExchange
package import SpoolgateSettings
import SpoolgateSpool

extension ThreadBudget {
    /// As the settings say.
    package init(_ settings: Settings) {
        self.init(maximum: settings.maximumThreads, reserve: 64)
    }
}

extension RequestBounds {
    /// The settings' bounds; those not set follow from the threads there are.
    init(_ settings: Settings, _ threads: ThreadBudget) {
        self.init(
            total: threads.maximum,
            reserve: threads.reserve,
            ofClient: Self.bound(
                settings.clients.maximumConcurrent,
                otherwise: threads.maximum / 2
            ),
            waitingOfClient: max(1, threads.maximum / 4),
            waiting: Self.bound(settings.maximumWaitingThreads, otherwise: threads.maximum / 2),
            reserveOfClient: max(1, threads.reserve / 4),
            atDoor: ThreadBudget.turningAway / 2
        )
    }

    /// 0 stands for none.
    private static func bound(_ set: Int?, otherwise derived: Int) -> Int {
        switch set {
        case 0: .max
        case let set?: set
        case nil: max(1, derived)
        }
    }
}

extension UploadBounds {
    /// Most uploads, as the settings say; 0 there stands for none.
    init(_ settings: Settings) {
        let ofClient = settings.clients.maximumUploads
        self.init(
            total: settings.maximumUploads == 0 ? nil : settings.maximumUploads,
            ofClient: ofClient == 0 ? nil : ofClient
        )
    }
}
