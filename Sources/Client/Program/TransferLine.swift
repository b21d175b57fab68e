// The progress of a transfer, as one line for a terminal of any width.
//
// Pure. The invariants: only acknowledged bytes are shown as received, and a line is shorter than the terminal is wide.

import ResumableUpload
import SpoolgatePosix
import SpoolgateTextFormats

struct TransferLine {
    private struct Sample {
        var nanoseconds: UInt64
        var sent: Int64
    }

    private var name: String
    private var progress: Transfer.Progress?
    private var samples: [Sample] = []
    private var waiting: (until: Deadline, reason: String)?

    /// The nanoseconds over which the rate is averaged.
    private static let span: UInt64 = 8_000_000_000
    /// The width of the progress bar in columns, with its brackets.
    private static let bar = 8...32

    init(_ name: String) { self.name = name.forTerminal }

    mutating func rename(_ name: String) { self.name = name.forTerminal }

    mutating func note(_ progress: Transfer.Progress, at now: Deadline) {
        // After a disconnection, content is sent again, so that older samples would give a wrong rate.
        if progress.sent < self.progress?.sent ?? 0 { samples = [] }
        self.progress = progress
        waiting = nil
        let last = samples.last.map { now.nanoseconds - $0.nanoseconds } ?? .max
        if last > Self.span / 32 {
            samples.append(Sample(nanoseconds: now.nanoseconds, sent: progress.sent))
        }
        while let oldest = samples.first, samples.count > 2,
            now.nanoseconds - oldest.nanoseconds > Self.span
        {
            samples.removeFirst()
        }
    }

    mutating func wait(until deadline: Deadline, _ reason: String) {
        waiting = (deadline, reason.forTerminal)
        samples = []
    }

    /// Returns a line of at most `columns - 1` columns, because the last column would start another line.
    func text(columns: Int, at now: Deadline) -> String {
        let room = max(1, columns - 1)
        if let waiting {
            let seconds = (waiting.until.remaining.wholeMilliseconds + 999) / 1_000
            let percent = share.map { " \($0)%" } ?? ""
            let begin = "\(name)\(percent) waiting \(Self.time(seconds)): "
            let left = room - begin.terminalColumns
            return (begin + Self.cause(waiting.reason, columns: left)).cut(toColumns: room)
        }
        guard let progress else { return "\(name) starting".cut(toColumns: room) }
        let rate = rate(at: now)
        let percent = share.map { "\($0)%" }
        let amount =
            ByteSize.rounded(progress.received)
            + (progress.total.map { "/" + ByteSize.rounded($0) } ?? "")
        let speed = rate.map { ByteSize.rounded($0) + "/s" }
        let left = left(rate)
        let short = name.cut(toColumns: 16)
        // From the longest to the shortest form; the first that fits is used.
        let forms: [(hasBar: Bool, words: [String?])] = [
            (true, [name, percent, nil, amount, speed, left]),
            (true, [short, percent, nil, amount, speed, left]),
            (true, [short, percent, nil, speed, left]),
            (true, [percent, nil, left]),
            (false, [percent ?? amount, left]),
            (false, [percent ?? amount]),
        ]
        for form in forms {
            let words = form.words.compactMap { $0 }
            let taken = words.joined(separator: "  ").terminalColumns
            guard form.hasBar, progress.total != nil else {
                if taken <= room { return words.joined(separator: "  ") }
                continue
            }
            let width = min(room - taken - 2, Self.bar.upperBound)
            guard width >= Self.bar.lowerBound else { continue }
            let place = form.words.prefix { $0 != nil }.count
            let before = words.prefix(place)
            return (before + [bar(width)] + words.dropFirst(place)).joined(separator: "  ")
        }
        return "".cut(toColumns: room)
    }

    /// Shortens a reason longer than `columns`: drops URLs and, if necessary, the part before the first colon.
    ///
    /// The cause is at the end.
    private static func cause(_ reason: String, columns: Int) -> String {
        guard reason.terminalColumns > columns else { return reason }
        let words = reason.split(separator: " ").map { word in
            word.contains("://") ? "\u{2026}" + (word.hasSuffix(":") ? ":" : "") : String(word)
        }
        let short = words.joined(separator: " ")
        guard short.terminalColumns > columns, let colon = short.firstRange(of: ": ") else {
            return short
        }
        return String(short[colon.upperBound...])
    }

    /// The percentage received, rounded down; nil if the total is unknown.
    private var share: Int64? {
        guard let progress, let total = progress.total else { return nil }
        return total == 0 ? 100 : Int64(Double(progress.received) / Double(total) * 100)
    }

    /// Returns a bar with `=` for received content, and `-` for other sent content.
    private func bar(_ width: Int) -> String {
        guard let progress, let total = progress.total else { return "" }
        let room = width - 2
        func columns(_ bytes: Int64) -> Int {
            total == 0 ? room : min(room, Int(Double(bytes) / Double(total) * Double(room)))
        }
        let received = columns(progress.received)
        let sent = max(received, columns(progress.sent))
        return "[" + String(repeating: "=", count: received)
            + String(repeating: "-", count: sent - received)
            + String(repeating: " ", count: room - sent) + "]"
    }

    /// Returns the rate in bytes per second; nil during the first second.
    private func rate(at now: Deadline) -> Int64? {
        guard let first = samples.first, let progress,
            now.nanoseconds - first.nanoseconds > 1_000_000_000
        else { return nil }
        let seconds = Double(now.nanoseconds - first.nanoseconds) / 1e9
        return Int64(Double(progress.sent - first.sent) / seconds)
    }

    private func left(_ rate: Int64?) -> String? {
        guard let progress, let total = progress.total else { return nil }
        if progress.sent >= total { return progress.received < total ? "all sent" : "response" }
        guard let rate, rate > 0 else { return nil }
        return Self.time((total - progress.sent) / rate) + " left"
    }

    /// Returns a duration as `45s`, `3m20s`, `2h05m` or `3d`.
    static func time(_ seconds: Int64) -> String {
        func two(_ number: Int64) -> String { number < 10 ? "0\(number)" : "\(number)" }
        return switch seconds {
        case ..<60: "\(max(0, seconds))s"
        case ..<3_600: "\(seconds / 60)m\(two(seconds % 60))s"
        case ..<172_800: "\(seconds / 3_600)h\(two(seconds / 60 % 60))m"
        default: "\(seconds / 86_400)d"
        }
    }
}
