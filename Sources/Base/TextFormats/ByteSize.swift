// Sizes and durations as operators write them.

/// Sizes in bytes, such as `64KiB`.
package enum ByteSize {
    private static let units = Units([
        ("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1),
    ])

    /// Parses `0`, or digits followed by B, KiB, MiB, GiB or TiB, and returns the number of bytes.
    ///
    /// Returns nil for any other text, and if the number does not fit.
    package static func read(_ text: String) -> Int64? { text == "0" ? 0 : units.read(text) }

    /// Parses a size in the format of `read` or curl(1): digits, optionally followed by K, M, G or T (powers of 1024).
    ///
    /// Returns nil like `read`.
    package static func readShort(_ text: String) -> Int64? {
        if let bytes = Int64(digits: text) { return bytes }
        guard let last = text.last, "kKmMgGtT".contains(last) else { return read(text) }
        return units.read(text.dropLast() + last.uppercased() + "iB")
    }

    /// Returns the exact size in the largest unit that divides it: `64KiB`, `1000B`.
    package static func text(_ bytes: Int64) -> String { units.text(bytes) ?? "0" }

    /// Returns the size for people, rounded down to one decimal: `1.5GiB`.
    package static func rounded(_ bytes: Int64) -> String {
        for unit in units.all.dropLast() where bytes >= unit.size {
            return "\(bytes / unit.size).\(bytes % unit.size * 10 / unit.size)\(unit.suffix)"
        }
        return "\(bytes)B"
    }

    /// Returns the size for people in powers of 1000, as on the upload page: `1.5 GB`, `150 MB`, `1 byte`.
    package static func decimal(_ bytes: Int64) -> String {
        for (unit, size) in [("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)] {
            let count = Double(bytes) / size
            guard count >= 0.9995 else { continue }
            let tenths = Int64((count * 10).rounded())
            return count < 99.95
                ? "\(tenths / 10).\(tenths % 10) \(unit)" : "\(Int64(count.rounded())) \(unit)"
        }
        return bytes == 1 ? "1 byte" : "\(bytes) bytes"
    }
}

/// Durations, such as `30s`.
package enum DurationText {
    private static let units = Units([
        ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1),
    ])

    /// Parses digits followed by ms, s, m, h or d; returns nil for other text and if the number does not fit.
    package static func read(_ text: String) -> Duration? {
        units.read(text).map { .milliseconds($0) }
    }

    /// Returns the duration in the largest unit that divides it: `90s`, `24h`.
    package static func text(_ duration: Duration) -> String {
        let parts = duration.components
        let milliseconds = parts.seconds * 1_000 + parts.attoseconds / 1_000_000_000_000_000
        return units.text(milliseconds) ?? "0s"
    }

    /// Returns the duration for people, in the largest unit that fits, such as `3h`.
    ///
    /// A negative duration gives `0s`.
    package static func rounded(_ seconds: Int64) -> String {
        switch seconds {
        case ..<60: "\(max(0, seconds))s"
        case ..<3_600: "\(seconds / 60)m"
        case ..<86_400: "\(seconds / 3_600)h"
        default: "\(seconds / 86_400)d"
        }
    }
}

/// The units of one quantity, largest first, with their sizes in the smallest unit.
private struct Units {
    let all: [(suffix: String, size: Int64)]

    init(_ all: [(suffix: String, size: Int64)]) { self.all = all }

    func read(_ text: String) -> Int64? {
        for unit in all where text.hasSuffix(unit.suffix) {
            // `ms` also ends in `s`, but without a digit before the `s`.
            guard let number = Int64(digits: text.dropLast(unit.suffix.count)) else { continue }
            let (product, overflow) = number.multipliedReportingOverflow(by: unit.size)
            return overflow ? nil : product
        }
        return nil
    }

    func text(_ amount: Int64) -> String? {
        all.first { amount >= $0.size && amount % $0.size == 0 }
            .map { "\(amount / $0.size)\($0.suffix)" }
    }
}

extension DefaultStringInterpolation {
    /// Appends a count with its noun, such as `1 upload` or `2 uploads`.
    package mutating func appendInterpolation(_ count: some BinaryInteger, of noun: String) {
        appendLiteral("\(count) \(noun)\(count == 1 ? "" : "s")")
    }
}
