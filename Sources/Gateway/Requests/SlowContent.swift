// Who brings content, and how fast: when threads run short, the slowest of the client that has most lets go.
//
// draft-12 §13 (security considerations): slow uploads hold what a server has. A client of the protocol loses nothing by
// that, since what it has sent is kept and it goes on there. Invariant: whoever brings 256 KiB a second, or has been there
// for less than a second, is left alone. A thousand that begin at once take every thread in that second: those who come
// must not wait for a longer one.

import SpoolgateExchange
import SpoolgatePosix
import SpoolgateUploadProtocol

/// The requests whose content is under way.
///
/// Any thread.
final class SlowContent: Sendable {
    /// The content of one request.
    final class Entry: Sendable {
        fileprivate let client: ClientName
        fileprivate let interrupt: @Sendable () -> Void
        /// Bytes that have come.
        let received = Counter()

        fileprivate init(_ client: ClientName, _ interrupt: @escaping @Sendable () -> Void) {
            self.client = client
            self.interrupt = interrupt
        }
    }

    /// What is known of the rate of one.
    private struct Look {
        var entry: Entry
        /// When it was looked at last, and how many bytes there were.
        var at: Deadline
        var count = 0
        /// Bytes a second between the last two looks, or since it began; nil: it has only just begun.
        var rate: Double?
        /// Whether it was asked to let go.
        var isAsked = false
        /// Whether it was there for a whole span.
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

    /// Seconds between two looks at one.
    private static let span = 10.0
    /// Seconds until one is looked at.
    private static let least = 1.0
    /// Bytes a second that nobody is asked to let go with.
    private static let fast = Double(256 << 10)

    private let looks = Monitor<[ObjectIdentifier: Look]>([:])
    private let now: @Sendable () -> Deadline

    /// Begins with nothing under way; `now` is the clock.
    init(now: @escaping @Sendable () -> Deadline = { .after(.zero) }) { self.now = now }

    /// Counts content that begins, of a request that `interrupt` asks to let go; `end` has to follow.
    func begin(_ client: ClientName, _ interrupt: @escaping @Sendable () -> Void) -> Entry {
        let entry = Entry(client, interrupt)
        looks.updateQuietly { $0[ObjectIdentifier(entry)] = Look(entry: entry, at: now()) }
        return entry
    }

    /// Counts content that is over.
    func end(_ entry: Entry) { looks.updateQuietly { $0[ObjectIdentifier(entry)] = nil } }

    /// Asks the slowest of the client that has most to let go; nil where there is none that is slow.
    ///
    /// - Returns: whose it was.
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

/// Whether content stays below a rate for a minute.
///
/// Used by the thread that receives it.
struct MinimumRate {
    /// Seconds.
    private static let span = 60.0

    /// Bytes a second; 0: any.
    private let rate: Int64
    private var start: Deadline
    private var count: Int64 = 0

    /// Begins now.
    init(_ rate: Int64, now: Deadline = .after(.zero)) { (self.rate, start) = (rate, now) }

    /// Whether the time since the last look that was a minute after the one before brought less, where `received` bytes
    /// have come in all.
    mutating func isMissed(received: Int64, now: Deadline = .after(.zero)) -> Bool {
        guard rate > 0 else { return false }
        let seconds = Double(now.nanoseconds &- start.nanoseconds) / 1e9
        guard seconds >= Self.span else { return false }
        defer { (start, count) = (now, received) }
        return Double(received - count) < Double(rate) * seconds
    }
}
