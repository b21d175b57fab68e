// Sizes and durations as operators write them, in settings and on the command line.

/// Sizes in bytes, `64KiB` and the like.
package enum ByteSize {
    private static let units: [(suffix: String, bytes: Int64)] = [
        ("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1),
    ]

    /// Bytes of `text`: digits and one of B, KiB, MiB, GiB, TiB, or `0`; nil for anything else and for
    /// what does not fit.
    package static func read(_ text: String) -> Int64? {
        guard text != "0" else { return 0 }
        for unit in units where text.hasSuffix(unit.suffix) {
            return multiply(digits: text.dropLast(unit.suffix.count), by: unit.bytes)
        }
        return nil
    }

    /// `bytes` in the largest unit that divides it: `64KiB`, `1000B`.
    package static func text(_ bytes: Int64) -> String {
        for unit in units where bytes >= unit.bytes && bytes % unit.bytes == 0 {
            return "\(bytes / unit.bytes)\(unit.suffix)"
        }
        return "0"
    }

    /// `bytes` for people, with one decimal: `1.5GiB`.
    package static func rounded(_ bytes: Int64) -> String {
        for unit in units.dropLast() where bytes >= unit.bytes {
            let tenths = bytes / (unit.bytes / 10)
            return "\(tenths / 10).\(tenths % 10)\(unit.suffix)"
        }
        return "\(bytes)B"
    }
}

/// Durations, `30s` and the like.
package enum DurationText {
    private static let units: [(suffix: String, milliseconds: Int64)] = [
        ("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000),
    ]

    /// The duration of `text`: digits and one of ms, s, m, h, d; nil for anything else and for what does
    /// not fit.
    package static func read(_ text: String) -> Duration? {
        for unit in units where text.hasSuffix(unit.suffix) {
            return multiply(digits: text.dropLast(unit.suffix.count), by: unit.milliseconds)
                .map { .milliseconds($0) }
        }
        return nil
    }

    /// A duration in the largest unit that divides it: `90s`, `24h`.
    package static func text(_ duration: Duration) -> String {
        let parts = duration.components
        let milliseconds = parts.seconds * 1_000 + parts.attoseconds / 1_000_000_000_000_000
        for unit in units.reversed()
        where milliseconds >= unit.milliseconds && milliseconds % unit.milliseconds == 0 {
            return "\(milliseconds / unit.milliseconds)\(unit.suffix)"
        }
        return "0s"
    }
}

private func multiply(digits: some StringProtocol, by factor: Int64) -> Int64? {
    guard let number = Int64(digits: digits) else { return nil }
    let (product, overflow) = number.multipliedReportingOverflow(by: factor)
    return overflow ? nil : product
}
