// The checks of content on its path to the gateway: buffering, interruption, size, speed and pauses.
//
// Pure: turns observations into findings.

import SpoolgateCurl
import SpoolgatePosix
import SpoolgateTextFormats

/// How much of slowly sent content the gateway had when the probe retrieved the offset.
struct StreamingEvidence: Evidence, Sendable, Equatable {
    var check: String { "streaming" }
    var sent: Int64
    /// The offset reported during the transfer, if any.
    var arrived: Int64?
    /// The time from the start of the transfer to this report.
    var after: Duration
    /// The response to the offset retrieval, or to the transfer if the transfer ended early.
    var response: ProbeResponse

    var finding: Finding {
        guard let arrived else {
            return failure(
                response.isTooLarge
                    ? "content was refused with \(response.description)"
                    : "the offset could not be retrieved during a transfer: \(response.description)",
                response.isTooLarge ? Fix.size : Fix.units
            )
        }
        let text =
            "\(ByteSize.rounded(arrived)) of \(ByteSize.rounded(sent)) had arrived after "
            + "\(after.seconds) of slow sending"
        if arrived == 0 {
            let fixes = [Fix.buffering, Fix.hasIt, Fix.proxy]
            return failure("\(text): nginx or a proxy buffers it", fixes)
        }
        guard arrived >= sent / 2 else {
            return warning("\(text): nginx or a proxy delays it", [Fix.buffering, Fix.proxy])
        }
        return ok(text)
    }
}

/// How much content the gateway kept after the probe reset the connection, and whether the upload could be resumed.
struct CutEvidence: Evidence, Sendable, Equatable {
    var check: String { "cut" }
    var sent: Int64
    /// The offset after the reset; nil if none was reported.
    var kept: Int64?
    /// The response to the append that resumes the upload; nil if the append was not sent.
    var resumed: ProbeResponse?
    /// The response to the interrupted append, without a head unless one was received before the reset.
    var response: ProbeResponse

    var finding: Finding {
        if response.isTooLarge {
            return failure("content was refused with \(response.description)", Fix.size)
        }
        let cut = "connection reset after \(ByteSize.rounded(sent))"
        guard let kept else {
            return failure("\(cut): the gateway reported no offset", Fix.units)
        }
        let text = "\(cut): \(ByteSize.rounded(kept)) kept"
        guard kept > 0 else {
            return failure(
                "\(text): interrupted content does not reach the gateway",
                [Fix.buffering, Fix.hasIt, Fix.proxy]
            )
        }
        guard let resumed, (200..<300).contains(resumed.status) else {
            return failure("\(text), not resumed: \(resumed?.description ?? "not tried")", Fix.log)
        }
        guard kept >= sent / 2 else {
            return warning("\(text); resumed on a second connection", [Fix.buffering, Fix.proxy])
        }
        return ok("\(text); resumed on a second connection")
    }
}

/// Whether an append of the largest permitted length is accepted before its content is sent.
struct SizeEvidence: Evidence, Sendable, Equatable {
    var check: String { "size" }
    /// The `Content-Length` of the append.
    var declared: Int64
    /// Whether the server sent 100 (Continue), or no response while a client would wait for one.
    var isWelcome = false
    var response: ProbeResponse

    var finding: Finding {
        let length = ByteSize.rounded(declared)
        if isWelcome { return ok("\(length) would be accepted (no content was sent)") }
        let text = "Content-Length \(length), no content sent: \(response.description)"
        switch (response.status, response.code) {
        case (413, nil): return failure(text, Fix.size)
        case (507, _):
            let fix = "enlarge the disk, raise spool.quota or lower spool.reserve in spoolgate.yaml"
            return warning(text, fix)
        default: return failure(text, [Fix.size, Fix.location])
        }
    }
}

/// The transfer speed over the tested versions of HTTP.
struct SpeedEvidence: Evidence, Sendable, Equatable {
    var check: String { "speed" }
    struct Run: Sendable, Equatable {
        var version: ClientRequest.Version
        var bytes: Int64
        var time: Duration
        var response: ProbeResponse

        var isTaken: Bool { (200..<300).contains(response.status) && bytes > 0 }
        var rate: Double { Double(bytes) / max(time / .seconds(1), 0.000_001) }
        var name: String { version == .http2 ? "h2" : "h1" }
    }

    var runs: [Run]
    var roundTrip: Duration

    /// The round-trip time below which a small HTTP/2 window does not limit the measured speed.
    private static let shortTrip = Duration.milliseconds(10)
    /// The HTTP/2 window that the shipped files set, in bytes.
    private static let window = 1_048_576.0

    var finding: Finding {
        if let refused = runs.first(where: { !$0.isTaken }) {
            return failure(
                "\(refused.name): \(refused.response.description)",
                refused.response.isTooLarge ? Fix.size : Fix.log
            )
        }
        let rates = runs.map { "\($0.name) \(Self.text($0.rate))" }.joined(separator: "; ")
        let text = "\(rates) at \(roundTrip.milliseconds) round trip"
        // If the window limits the speed, one window is sent in each round trip.
        guard let second = runs.first(where: { $0.version == .http2 }), roundTrip >= Self.shortTrip
        else { return ok(text) }
        let underWay = second.rate * (roundTrip / .seconds(1))
        let first = runs.first { $0.version == .http1 }
        guard underWay < Self.window / 2, first.map({ second.rate < $0.rate / 2 }) ?? true else {
            return ok(text)
        }
        return warning(
            "\(text): limited by a window of about \(ByteSize.rounded(Int64(underWay)))",
            Fix.window
        )
    }

    private static func text(_ rate: Double) -> String {
        let tenths = Int64(rate / 100_000)
        return tenths >= 100 ? "\(tenths / 10)MB/s" : "\(tenths / 10).\(tenths % 10)MB/s"
    }
}

/// Whether a connection stays open during a long pause in the content.
struct SilenceEvidence: Evidence, Sendable, Equatable {
    var check: String { "silence" }
    /// How long the connection stayed open without a byte.
    var borne: Duration
    /// Whether the server closed the connection before the pause ended.
    var wasEnded: Bool

    /// The pause, longer than the timeout in the shipped nginx files.
    static let length = Duration.seconds(70)
    /// The shortest acceptable timeout, slightly less than that of the shipped nginx files.
    private static let least = Duration.seconds(55)

    var finding: Finding {
        guard wasEnded else { return ok("the connection survived \(borne.seconds) without a byte") }
        let text = "the connection was closed after \(borne.seconds) without a byte"
        guard borne < Self.least else { return ok(text) }
        return warning(
            text,
            [Fix.gap, "raise the idle timeouts of proxies and load balancers in front"]
        )
    }
}

extension Duration {
    var seconds: String {
        let tenths = wholeMilliseconds / 100
        return tenths % 10 == 0 ? "\(tenths / 10)s" : "\(tenths / 10).\(tenths % 10)s"
    }

    var milliseconds: String {
        let tenths = components.seconds * 10_000 + components.attoseconds / 100_000_000_000_000
        if tenths == 0 { return "under 0.1ms" }
        return tenths >= 100 ? "\(tenths / 10)ms" : "\(tenths / 10).\(tenths % 10)ms"
    }
}
