// What content does on its way: whether it comes as it is sent, survives a cut, may be as long as the gateway
// allows, and how fast it is.
//
// Pure: what was seen, and what that means.

import SpoolgateCurl
import SpoolgatePosix
import SpoolgateTextFormats

/// What had arrived of content that trickled.
struct StreamingSeen: Seen, Sendable, Equatable {
    var check: String { "streaming" }
    /// Bytes that had been sent.
    var sent: Int64
    /// Bytes that had arrived then; nil: it was not told.
    var arrived: Int64?
    /// How long it had trickled.
    var after: Duration
    /// The answer that should have told the offset.
    var answer: ProbeAnswer

    /// What it means.
    var finding: Finding {
        guard let arrived else {
            return failure(
                answer.isTooLarge
                    ? "content was refused with \(answer.description)"
                    : "the offset could not be retrieved during a transfer: \(answer.description)",
                Mend.refusal(answer, otherwise: [Mend.units])
            )
        }
        let text =
            "\(ByteSize.rounded(arrived)) of \(ByteSize.rounded(sent)) had arrived after "
            + "\(after.seconds) of slow sending"
        if arrived == 0 {
            return failure(
                "\(text): nginx or a proxy buffers it",
                [Mend.buffering, Mend.hasIt, Mend.proxy]
            )
        }
        guard arrived >= sent / 2 else {
            return warning("\(text): nginx or a proxy delays it", [Mend.buffering, Mend.proxy])
        }
        return ok(text)
    }
}

/// What was kept of content whose connection was reset, and whether it went on.
struct CutSeen: Seen, Sendable, Equatable {
    var check: String { "cut" }
    /// Bytes that had been sent.
    var sent: Int64
    /// Bytes that were kept; nil: it was not told.
    var kept: Int64?
    /// The answer to the append that went on from there; nil: it was not tried.
    var resumed: ProbeAnswer?
    /// What came of the connection before it could be reset.
    var answer: ProbeAnswer

    /// What it means.
    var finding: Finding {
        if answer.isTooLarge {
            return failure("content was refused with \(answer.description)", [Mend.size])
        }
        let cut = "connection reset after \(ByteSize.rounded(sent))"
        guard let kept else {
            return failure("\(cut): the gateway reported no offset", [Mend.units])
        }
        let text = "\(cut): \(ByteSize.rounded(kept)) kept"
        guard kept > 0 else {
            return failure(
                "\(text): interrupted content does not reach the gateway",
                [Mend.buffering, Mend.hasIt, Mend.proxy]
            )
        }
        guard let resumed, (200..<300).contains(resumed.status) else {
            let told = resumed?.description ?? "not tried"
            return failure(
                "\(text), not resumed: \(told)",
                ["journalctl -u spoolgate  (shows the reason)"]
            )
        }
        guard kept >= sent / 2 else {
            return warning("\(text); resumed on a second connection", [Mend.buffering, Mend.proxy])
        }
        return ok("\(text); resumed on a second connection")
    }
}

/// The answer to an append of the greatest length, of which nothing was sent.
struct SizeSeen: Seen, Sendable, Equatable {
    var check: String { "size" }
    /// The length that was told.
    var declared: Int64
    /// Whether 100 (Continue) came, or the wait for any answer ended.
    var isWelcome: Bool
    /// The answer, if there was one.
    var answer: ProbeAnswer

    /// What it means.
    var finding: Finding {
        let length = ByteSize.rounded(declared)
        if isWelcome { return ok("\(length) would be accepted (no content was sent)") }
        let text = "Content-Length \(length), no content sent: \(answer.description)"
        switch (answer.status, answer.code) {
        case (413, nil): return failure(text, [Mend.size])
        case (507, _):
            return warning(
                text,
                ["enlarge the disk, raise spool.quota or lower spool.reserve in spoolgate.yaml"]
            )
        default: return failure(text, [Mend.size, Mend.location])
        }
    }
}

/// How fast content went.
struct SpeedSeen: Seen, Sendable, Equatable {
    var check: String { "speed" }
    /// How one version of HTTP did.
    struct Run: Sendable, Equatable {
        /// The version.
        var version: ClientRequest.Version
        /// Bytes that went.
        var bytes: Int64
        /// How long that took.
        var time: Duration
        /// The answer.
        var answer: ProbeAnswer

        var isTaken: Bool { (200..<300).contains(answer.status) && bytes > 0 }
        var rate: Double { Double(bytes) / max(time / .seconds(1), 0.000_001) }
        var name: String { version == .http2 ? "h2" : "h1" }
    }

    /// How each version did.
    var runs: [Run]
    /// One round trip.
    var roundTrip: Duration

    /// Below that a round trip does not limit anything that is measured.
    private static let shortTrip = Duration.milliseconds(10)
    /// The window that the shipped files set.
    private static let window = 1_048_576.0

    /// What it means.
    var finding: Finding {
        if let refused = runs.first(where: { !$0.isTaken }) {
            return failure(
                "\(refused.name): \(refused.answer.description)",
                Mend.refusal(
                    refused.answer,
                    otherwise: ["journalctl -u spoolgate  (shows the reason)"]
                )
            )
        }
        let rates = runs.map { "\($0.name) \(Self.text($0.rate))" }.joined(separator: "; ")
        let text = "\(rates) at \(roundTrip.milliseconds) round trip"
        // What is under way at a time is the window, where that is what limits.
        guard let second = runs.first(where: { $0.version == .http2 }), roundTrip >= Self.shortTrip
        else { return ok(text) }
        let underWay = second.rate * (roundTrip / .seconds(1))
        let first = runs.first { $0.version == .http1 }
        guard underWay < Self.window / 2, first.map({ second.rate < $0.rate / 2 }) ?? true else {
            return ok(text)
        }
        return warning(
            "\(text): limited by a window of about \(ByteSize.rounded(Int64(underWay)))",
            [Mend.window]
        )
    }

    private static func text(_ rate: Double) -> String {
        let tenths = Int64(rate / 100_000)
        return tenths >= 100 ? "\(tenths / 10)MB/s" : "\(tenths / 10).\(tenths % 10)MB/s"
    }
}

/// What a long silence in the middle of content brought.
struct SilenceSeen: Seen, Sendable, Equatable {
    var check: String { "silence" }
    /// How long the other side bore it.
    var borne: Duration
    /// Whether it ended the connection.
    var wasEnded: Bool

    /// How long this side is silent: longer than the shipped files allow.
    static let length = Duration.seconds(70)
    /// Less than that is shorter than the shipped files, and than a train's tunnel.
    private static let least = Duration.seconds(55)

    /// What it means.
    var finding: Finding {
        guard wasEnded else { return ok("the connection survived \(borne.seconds) without a byte") }
        let text = "the connection was closed after \(borne.seconds) without a byte"
        guard borne < Self.least else { return ok(text) }
        return warning(
            text,
            [Mend.gap, "raise the idle timeouts of proxies and load balancers in front"]
        )
    }
}

extension Duration {
    /// `2.1s`.
    var seconds: String {
        let tenths = wholeMilliseconds / 100
        return tenths % 10 == 0 ? "\(tenths / 10)s" : "\(tenths / 10).\(tenths % 10)s"
    }

    /// `3ms`, `0.2ms`.
    var milliseconds: String {
        let tenths = components.seconds * 10_000 + components.attoseconds / 100_000_000_000_000
        if tenths == 0 { return "under 0.1ms" }
        return tenths >= 100 ? "\(tenths / 10)ms" : "\(tenths / 10).\(tenths % 10)ms"
    }
}
