// How many requests can be served at a time with the descriptors there are.
//
// Pure. Invariant: as many requests as it allows never run out of descriptors.

/// Threads for requests.
package struct ThreadBudget: Sendable, Equatable {
    /// Requests of any kind at a time.
    package let maximum: Int
    /// Short requests beyond those.
    package let reserve: Int
    /// Threads beyond both, for requests that are turned away or wait for somebody to let go.
    package static let turningAway = 8
    /// Threads in all.
    package var threads: Int { maximum + reserve + Self.turningAway }
    /// Connections that a web server keeps for its next request, at most.
    package static let keptConnections = 128

    /// Descriptors of one request at most: the connection, and a file in memory while its parameters are
    /// taken apart; then a data file and its record, or a scratch file, and either what ends its waits for content and the
    /// file that nginx is given, or the upstream's connection and what libcurl wakes itself with.
    package static let ofRequest = 5
    /// Of a delivery by the queue: data file, record, the upstream's connection and libcurl's.
    private static let ofDelivery = 4
    /// For what opens files now and then: the queue's runs, events, inspections.
    private static let slack = 64

    /// As the settings say.
    package init(maximum: Int, reserve: Int) {
        self.maximum = maximum
        self.reserve = reserve
    }

    /// The same, or less where there are not descriptors enough.
    ///
    /// - Parameters:
    ///   - descriptors: the process's limit.
    ///   - open: descriptors that are open before the first request.
    ///   - deliveries: most deliveries of the queue at a time.
    /// - Returns: at least one thread of each kind.
    package func within(descriptors: Int, open: Int, deliveries: Int) -> ThreadBudget {
        let own = open + Self.slack + Self.keptConnections + Self.ofDelivery * deliveries
        let requests = max(0, descriptors - own) / Self.ofRequest - Self.turningAway
        let reserve = max(1, min(reserve, requests / 4))
        return ThreadBudget(maximum: max(1, min(maximum, requests - reserve)), reserve: reserve)
    }
}
