// The value of `--not-before`: the time at which a transfer may start.
//
// Times without `Z` are in the local time zone.

import Glibc
import SpoolgatePosix
import SpoolgateTextFormats

enum StartTime {
    /// Reads `22:00` (the next time it is 22:00), `2026-11-23T22:00`, `2026-11-23T22:00:00Z` or `2h` (from now), or
    /// returns nil.
    static func read(_ text: String, now: WallTime = .now) -> WallTime? {
        if let duration = DurationText.read(text) {
            return WallTime(seconds: now.seconds + duration.components.seconds)
        }
        guard text.contains("T") else { return nextTime(text, now) }
        let isUTC = text.hasSuffix("Z")
        let halves = (isUTC ? text.dropLast() : text[...]).split(separator: "T")
        guard halves.count == 2, let date = numbers(halves[0], "-", [4, 2, 2]),
            let time = clock(halves[1])
        else { return nil }
        var parts = tm()
        parts.tm_year = date[0] - 1900
        parts.tm_mon = date[1] - 1
        parts.tm_mday = date[2]
        set(&parts, time)
        var same = parts
        let moment = isUTC ? timegm(&same) : mktime(&same)
        // Dates such as February 30 are refused.
        guard same.tm_mday == parts.tm_mday, same.tm_mon == parts.tm_mon else { return nil }
        return WallTime(seconds: Int64(moment))
    }

    private static func nextTime(_ text: String, _ now: WallTime) -> WallTime? {
        guard let time = clock(text[...]) else { return nil }
        var moment = time_t(now.seconds)
        var parts = tm()
        guard localtime_r(&moment, &parts) != nil else { return nil }
        set(&parts, time)
        var today = parts
        let next = mktime(&today)
        if Int64(next) > now.seconds { return WallTime(seconds: Int64(next)) }
        parts.tm_mday += 1
        parts.tm_isdst = -1
        return WallTime(seconds: Int64(mktime(&parts)))
    }

    private static func set(_ parts: inout tm, _ time: [Int32]) {
        (parts.tm_hour, parts.tm_min, parts.tm_isdst) = (time[0], time[1], -1)
        parts.tm_sec = time.count > 2 ? time[2] : 0
    }

    private static func clock(_ text: Substring) -> [Int32]? {
        guard let time = numbers(text, ":", [2, 2, 2]) ?? numbers(text, ":", [2, 2]), time[0] < 24,
            time[1] < 60, time.last ?? 0 < 60
        else { return nil }
        return time
    }

    /// Returns the numbers in `text`, or nil unless each has as many digits as `digits` states.
    private static func numbers(
        _ text: Substring,
        _ separator: Character,
        _ digits: [Int]
    ) -> [Int32]? {
        let words = text.split(separator: separator, omittingEmptySubsequences: false)
        guard words.map(\.utf8.count) == digits else { return nil }
        let numbers = words.compactMap { Int32(digits: $0) }
        return numbers.count == digits.count ? numbers : nil
    }
}
