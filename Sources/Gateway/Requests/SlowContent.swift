// The rates at which clients send content; if few threads are free, slow requests are ended.
//
// Slow uploads occupy a server's resources (draft-12 §13). A client that can resume loses nothing because its bytes are
// kept. Invariant: a request that receives 256 KiB per second, or that began less than a second ago, is never asked to
// end. During a longer grace period, a thousand new requests could occupy every thread.

import SpoolgateExchange
import SpoolgatePosix
import SpoolgateUploadProtocol

/// The requests that are sending content; thread-safe.
final class SlowContent: Sendable {
    final class Entry: Sendable {
        fileprivate let client: ClientName
        fileprivate let interrupt: @Sendable () -> Void
        let received = Counter()

        fileprivate init(_ client: ClientName, _ interrupt: @escaping @Sendable () -> Void) {
            self.client = client
            self.interrupt = interrupt
        }
    }

    private struct Look {
        var entry: Entry
        /// The time of the last measurement, and the number of bytes received by then.
        var at: Deadline
        var count = 0
        /// Bytes per second since the last measurement, or since the content began; nil before the rate is first
        /// calculated.
        var rate: Double?
        var isAsked = false
        private var isMeasured = false

        init(entry: Entry, at: Deadline) { (self.entry, self.at) = (entry, at) }

        mutating func renew(_ now: Deadline) {
            let seconds = Double(now.nanoseconds &- at.nanoseconds) / 1e9
            guard seconds >= (isMeasured ? SlowContent.span : SlowContent.least) else { return }
            let received = entry.received.count
            rate = Double(received - count) / seconds
            guard seconds >= SlowContent.span else { return }
            (at, count, isMeasured) = (now, received, true)
        }
    }

    /// Seconds between two measurements of a request.
    private static let span = 10.0
    private static let least = 1.0
    /// A request at or above this rate, in bytes per second, is never asked to end.
    private static let fast = Double(256 << 10)

    private let looks = Monitor<[ObjectIdentifier: Look]>([:])
    private let now: @Sendable () -> Deadline

    init(now: @escaping @Sendable () -> Deadline = { .after(.zero) }) { self.now = now }

    /// Adds a request whose content begins; the caller must call `end` when the content ends.
    ///
    /// `interrupt` is called at most once, to ask the request to end.
    func begin(_ client: ClientName, _ interrupt: @escaping @Sendable () -> Void) -> Entry {
        let entry = Entry(client, interrupt)
        looks.updateQuietly { $0[ObjectIdentifier(entry)] = Look(entry: entry, at: now()) }
        return entry
    }

    func end(_ entry: Entry) { looks.updateQuietly { $0[ObjectIdentifier(entry)] = nil } }

    /// Asks the slowest request of the client with the most requests to end; returns at once.
    ///
    /// - Returns: the client; nil if no request is slow.
    func letGo() -> ClientName? {
        let chosen = looks.updateQuietly { looks -> Entry? in
            let now = now()
            var counts: [ClientName: Int] = [:]
            for key in looks.keys {
                looks[key]?.renew(now)
                if let look = looks[key], !look.isAsked {
                    counts[look.entry.client, default: 0] += 1
                }
            }
            var slowest: (key: ObjectIdentifier, count: Int, rate: Double)?
            for (key, look) in looks where !look.isAsked {
                guard let rate = look.rate, rate < Self.fast else { continue }
                let count = counts[look.entry.client] ?? 0
                if let slowest, (slowest.count, rate) >= (count, slowest.rate) { continue }
                slowest = (key, count, rate)
            }
            guard let slowest else { return nil }
            looks[slowest.key]?.isAsked = true
            return looks[slowest.key]?.entry
        }
        chosen?.interrupt()
        return chosen?.client
    }
}

/// Checks, on the thread that receives content, whether content arrives below a minimum rate for a minute.
struct MinimumRate {
    private static let span = 60.0

    /// The minimum rate in bytes per second; 0 for no minimum.
    private let rate: Int64
    private var start: Deadline
    private var count: Int64 = 0

    init(_ rate: Int64, now: Deadline = .after(.zero)) { (self.rate, start) = (rate, now) }

    /// Returns true if a measurement of one minute has ended with a rate below the minimum.
    ///
    /// `received` is the number of bytes received so far.
    mutating func isMissed(received: Int64, now: Deadline = .after(.zero)) -> Bool {
        guard rate > 0 else { return false }
        let seconds = Double(now.nanoseconds &- start.nanoseconds) / 1e9
        guard seconds >= Self.span else { return false }
        defer { (start, count) = (now, received) }
        return Double(received - count) < Double(rate) * seconds
    }
}
