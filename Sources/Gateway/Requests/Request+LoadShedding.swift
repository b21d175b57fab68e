// Rejection of requests that exceed a limit, the places of requests that wait, and the early end of slow requests.
//
// Invariant: rejecting a request leaves its upload unchanged.

package import SpoolgateExchange
import SpoolgateJournal
import SpoolgatePosix
package import SpoolgateSettings
import SpoolgateSpool
import SpoolgateUploadProtocol
import Synchronization

extension Request {
    /// Rejects a request whose operation has not begun.
    func reject(_ request: UploadRequest, _ refusal: Refusal) {
        noteRejected(refusal)
        switch request {
        case .append, .offsetRetrieval, .cancellation, .elsewhere: abort(refusal)
        case .creation, .concatenation: refuse(refusal)
        case .resourceOptions, .options, .status, .ordinaryUpload, .passedUpload, .passThrough,
            .refused:
            refuse(refusal.ofOrdinaryRequest)
        }
    }

    /// A place among the waiting requests, not taken yet.
    var waitingPlace: WaitingPlace { WaitingPlace(gateway.admission, for: ticket) }

    /// Takes a place among the waiting requests; returns nil if none was free and a refusal was sent.
    func takeWaitingPlace() -> WaitingPlace? {
        let place = waitingPlace
        if place.take() { return place }
        let refusal = place.refusal ?? .tooManyWait
        noteRejected(refusal)
        refuse(refusal)
        return nil
    }
}

extension Responding {
    func noteRejected(_ refusal: Refusal) {
        guard let bound = refusal.bound,
            let count = gateway.rejected.update({ $0.note(bound) })
        else { return }
        gateway.log.rejected(bound: bound, client: "\(request.client)", count: count)
    }
}

extension UploadRequest {
    /// Whether the client uses no upload protocol, or uses one only with the upstream.
    var isOrdinary: Bool {
        switch self {
        case .ordinaryUpload, .passedUpload, .passThrough, .options: true
        case .creation, .concatenation, .append, .offsetRetrieval, .cancellation,
            .resourceOptions, .status, .elsewhere, .refused:
            false
        }
    }

    /// Whether the request continues an upload, so that its client would take any response for the upload's.
    var isAppend: Bool { if case .append = self { true } else { false } }

    /// Whether the request only reads or removes an upload, so that it ends quickly.
    var isShort: Bool {
        switch self {
        case .offsetRetrieval, .cancellation, .resourceOptions, .status, .elsewhere, .refused: true
        case .creation, .concatenation, .append, .options, .ordinaryUpload, .passedUpload,
            .passThrough:
            false
        }
    }
}

extension Refusal {
    /// The exceeded limit: a setting, `threads.waiting` or `clients.waiting`; nil if the refusal has another reason.
    fileprivate var bound: String? {
        switch self {
        case .busy: "threads.maximum"
        case .tooManyWait: "threads.waiting"
        case .clientBusy: "clients.maximum-concurrent"
        case .clientWaits: "clients.waiting"
        case .clientHasUploads: "clients.maximum-uploads"
        default: nil
        }
    }
}

// MARK: Slow requests

// The rates at which clients send content; if few threads are free, slow requests are ended.
//
// Slow uploads occupy a server's resources (draft-12 §13). A client that can resume loses nothing because its bytes are
// kept, but it returns, and its next request needs a thread, too. Invariants: at most four requests a second are asked
// to end, each chosen among a limited number; a request that receives 256 KiB per second, or that began
// less than a second ago, is never asked to end; the next requests of an upload whose request was asked to end are
// spared for ten minutes, unless they receive almost nothing.

/// The requests that are sending content; thread-safe.
final class SlowContent: Sendable {
    final class Entry: Sendable {
        fileprivate let client: ClientName
        /// Nil if the client cannot resume.
        fileprivate let upload: UploadID?
        fileprivate let interrupt: @Sendable () -> Void
        let content: ContentCount
        /// The index in `State.looks`, or -1 if the entry is no longer there; changed only under the lock.
        fileprivate let place = Atomic(-1)

        fileprivate init(
            _ client: ClientName,
            _ upload: UploadID?,
            _ content: ContentCount,
            _ interrupt: @escaping @Sendable () -> Void
        ) {
            self.client = client
            self.upload = upload
            self.content = content
            self.interrupt = interrupt
        }
    }

    private struct Look {
        let entry: Entry
        /// Until then, the request is ended only if it receives almost nothing, because it returned after an end.
        let sparedUntil: Deadline
        /// The time of the last measurement, and the number of bytes received by then.
        var at: Deadline
        var count = 0
        /// Bytes per second since the last measurement, or since the content began; nil before the rate is first
        /// calculated.
        var rate: Double?
        var isMeasured = false

        mutating func renew(_ now: Deadline) {
            let seconds = Double(now.nanoseconds &- at.nanoseconds) / 1e9
            guard seconds >= (isMeasured ? SlowContent.span : SlowContent.least) else { return }
            let received = entry.content.received
            rate = Double(received - count) / seconds
            guard seconds >= SlowContent.span else { return }
            (at, count, isMeasured) = (now, received, true)
        }

        func isBelow(_ limit: Limit, _ now: Deadline) -> Bool {
            guard let rate else { return false }
            if now < sparedUntil { return isMeasured && rate < SlowContent.silent }
            if isMeasured, rate < SlowContent.lowest { return true }
            return limit == .fast && entry.upload != nil && rate < SlowContent.fast
        }
    }

    private struct State {
        var looks: [Look] = []
        /// The index of the next request to consider.
        var hand = 0
        /// The earliest time at which the next request may be asked to end.
        var next = Deadline.after(.zero)
        /// The uploads whose requests were asked to end, with the times until which their next requests are spared.
        var spared = RecentTable<UploadID, Deadline>(maximum: SlowContent.maximumSpared)

        mutating func add(_ entry: Entry, _ now: Deadline) {
            entry.place.store(looks.count, ordering: .relaxed)
            let sparedUntil = entry.upload.flatMap { spared[$0] } ?? now
            looks.append(Look(entry: entry, sparedUntil: sparedUntil, at: now))
        }

        mutating func remove(_ entry: Entry) {
            let place = entry.place.load(ordering: .relaxed)
            guard place >= 0 else { return }
            entry.place.store(-1, ordering: .relaxed)
            let last = looks.removeLast()
            guard place < looks.count else { return }
            looks[place] = last
            last.entry.place.store(place, ordering: .relaxed)
        }

        /// Removes and returns the slowest request of the client with the most requests, among the next ones.
        mutating func takeSlowest(_ limit: Limit, _ now: Deadline) -> Entry? {
            let (first, count) = (hand, min(looks.count, SlowContent.maximumConsidered))
            guard next <= now, count > 0 else { return nil }
            let indices = (first..<first + count).lazy.map { [total = looks.count] in $0 % total }
            var numbers: [ClientName: Int] = [:]
            for index in indices {
                looks[index].renew(now)
                numbers[looks[index].entry.client, default: 0] += 1
            }
            var slowest: (entry: Entry, number: Int, rate: Double)?
            for index in indices where looks[index].isBelow(limit, now) {
                let look = looks[index]
                let (number, rate) = (numbers[look.entry.client] ?? 0, look.rate ?? 0)
                if let slowest, (slowest.number, rate) >= (number, slowest.rate) { continue }
                slowest = (look.entry, number, rate)
            }
            hand = (first + count) % looks.count
            guard let slowest else { return nil }
            remove(slowest.entry)
            next = now.later(by: SlowContent.pause)
            if let upload = slowest.entry.upload {
                // Removed first, so that the table considers it new.
                spared[upload] = nil
                spared[upload] = now.later(by: SlowContent.mercy)
            }
            return slowest.entry
        }
    }

    /// Which requests may be asked to end.
    enum Limit {
        /// Those that have received less than 64 bytes per second for ten seconds.
        case lowestRate
        /// Also those that receive less than 256 KiB per second, and whose client can resume.
        case fast
    }

    /// Seconds between two measurements of a request.
    private static let span = 10.0
    private static let least = 1.0
    /// Rates in bytes per second.
    private static let fast = Double(256 << 10)
    private static let lowest = 64.0
    private static let silent = 0.5
    /// The time between two requests that are asked to end.
    private static let pause = Duration.milliseconds(250)
    /// How long the next requests of an upload are spared after one was asked to end.
    private static let mercy = Duration.seconds(600)
    /// The number of requests that can be asked to end within `mercy`.
    private static let maximumSpared = 2400
    /// How many requests one choice considers.
    private static let maximumConsidered = 64

    private let state = Monitor(State())
    private let now: @Sendable () -> Deadline

    init(now: @escaping @Sendable () -> Deadline = { .after(.zero) }) { self.now = now }

    /// Adds a request whose content begins; the caller must call `end` when the content ends.
    ///
    /// `upload` must be nil if the client does not know the upload's resource and therefore cannot resume. `interrupt`
    /// is called at most once, to ask the request to end.
    func begin(
        _ client: ClientName,
        upload: UploadID?,
        _ content: ContentCount,
        _ interrupt: @escaping @Sendable () -> Void
    ) -> Entry {
        let entry = Entry(client, upload, content, interrupt)
        state.updateQuietly { $0.add(entry, now()) }
        return entry
    }

    func end(_ entry: Entry) { state.updateQuietly { $0.remove(entry) } }

    /// Asks the slowest request of the client with the most requests to end; returns at once.
    ///
    /// - Returns: the client; nil if no request is below the limit, or the last one was asked too recently.
    func interruptSlowest(_ limit: Limit) -> ClientName? {
        let chosen = state.updateQuietly { $0.takeSlowest(limit, now()) }
        chosen?.interrupt()
        return chosen?.client
    }
}

// MARK: Limits

// The limits on threads, requests and uploads, computed from the settings.

extension ThreadBudget {
    /// Creates the budget that the settings specify.
    package init(_ settings: Settings) {
        self.init(maximum: settings.maximumThreads, reserve: 64)
    }
}

extension RequestBounds {
    /// A limit that is not set is derived from the number of threads.
    init(_ settings: Settings, _ threads: ThreadBudget) {
        let (half, set) = (max(1, threads.maximum / 2), settings.clients.maximumConcurrent)
        self.init(
            served: Bound(total: threads.maximum, ofClient: set == 0 ? .max : set ?? half),
            reserve: Bound(total: threads.reserve, ofClient: max(1, threads.reserve / 4)),
            waiting: Bound(total: half, ofClient: max(1, threads.maximum / 4)),
            atDoor: ThreadBudget.turningAway / 2
        )
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
