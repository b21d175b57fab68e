// The number of requests that can be served at a time with the available file descriptors.
//
// Pure. Invariant: the requests within a budget never exhaust the descriptors.

/// The number of threads for requests.
package struct ThreadBudget: Sendable, Equatable {
    /// The maximum number of concurrent requests of any kind.
    package let maximum: Int
    /// The maximum number of concurrent short requests in addition to `maximum`.
    package let reserve: Int
    /// The number of threads in addition to `maximum` and `reserve`, for requests that are rejected or that wait for
    /// slow requests to end.
    package static let turningAway = 8
    package var threads: Int { maximum + reserve + Self.turningAway }
    /// The maximum number of idle connections that the web server keeps open.
    package static let keptConnections = 128

    /// The maximum number of file descriptors that one request uses at a time.
    ///
    /// At first, these are the connection and a file in memory. Later, they are the connection, a data file and its
    /// record or a scratch file, and either the alarm and the file passed to nginx, or the upstream's connection and
    /// libcurl's wakeup descriptor.
    package static let ofRequest = 5
    /// The number of file descriptors of one delivery: data file, record, the upstream's connection and libcurl's
    /// wakeup descriptor.
    private static let ofDelivery = 4
    /// The file descriptors set aside for queue runs, events and inspections.
    private static let slack = 64

    /// Creates a budget.
    package init(maximum: Int, reserve: Int) {
        self.maximum = maximum
        self.reserve = reserve
    }

    /// Returns this budget, reduced if the process may not open enough file descriptors for it.
    ///
    /// The process may open `descriptors` file descriptors; `open` are open before the first request.
    /// `deliveries` is the maximum number of concurrent deliveries of the queue.
    ///
    /// - Returns: a budget with at least one thread of each kind.
    package func within(descriptors: Int, open: Int, deliveries: Int) -> ThreadBudget {
        let own = open + Self.slack + Self.keptConnections + Self.ofDelivery * deliveries
        let requests = max(0, descriptors - own) / Self.ofRequest - Self.turningAway
        let reserve = max(1, min(reserve, requests / 4))
        return ThreadBudget(maximum: max(1, min(maximum, requests - reserve)), reserve: reserve)
    }
}
