// Dates in fields (RFC 9110 §5.6.7).
//
// Pure: computed without the C library's calendar.

import SpoolgateTextFormats

/// Formats dates as IMF-fixdate, and parses that form and the two obsolete ones.
package enum HTTPDate {
    private static let days = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"]
    private static let months = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ]

    /// Formats a time as a date such as `Sun, 22 Nov 2026 16:17:38 GMT`.
    ///
    /// `seconds` counts from 1970-01-01 UTC and is clamped to the years 1970 to 9999.
    package static func text(_ seconds: Int64) -> String {
        let seconds = min(max(seconds, 0), 253_402_300_799)
        let day = seconds / 86_400
        let time = seconds % 86_400
        // Counting years from March 1 puts the leap day at the end; 400 years have 146,097 days.
        let shifted = day + 719_468
        let era = shifted / 146_097
        let dayOfEra = shifted % 146_097
        let yearOfEra =
            (dayOfEra - dayOfEra / 1_460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let month = (5 * dayOfYear + 2) / 153
        let dayOfMonth = dayOfYear - (153 * month + 2) / 5 + 1
        let isNextYear = month >= 10
        let year = yearOfEra + era * 400 + (isNextYear ? 1 : 0)
        return days[Int(day % 7)] + ", " + padded(dayOfMonth) + " "
            + months[Int(isNextYear ? month - 10 : month + 2)] + " \(padded(year, 4)) "
            + "\(padded(time / 3_600)):\(padded(time / 60 % 60)):\(padded(time % 60)) GMT"
    }

    /// Parses a date in any of the three forms; returns nil for any other text.
    ///
    /// The forms are `Sun, 06 Nov 1994 08:49:37 GMT`, `Sunday, 06-Nov-94 08:49:37 GMT` and `Sun Nov  6 08:49:37 1994`;
    /// the day of the week is not checked. `now` and the result are seconds since 1970-01-01 UTC, negative before 1970.
    /// A two-digit year is read as at most 50 years after `now`.
    package static func seconds(_ text: String, now: Int64) -> Int64? {
        let words = text.split { $0 == " " || $0 == "," }
        switch words.count {
        case 6 where words[5].hasSameBytes(as: "GMT"):
            return seconds(day: words[1], words[2], year: words[3], time: words[4])
        case 5:
            return seconds(day: words[2], words[1], year: words[4], time: words[3])
        case 4 where words[3].hasSameBytes(as: "GMT"):
            let date = words[1].split(separator: "-")
            guard date.count == 3, date[2].utf8.count == 2, let short = Int64(digits: date[2])
            else { return nil }
            let present = 1970 + now / 31_556_952
            var year = present / 100 * 100 + short
            if year > present + 50 { year -= 100 }
            return seconds(day: date[0], date[1], year: Substring(padded(year, 4)), time: words[2])
        default: return nil
        }
    }

    private static func seconds(
        day: Substring,
        _ month: Substring,
        year: Substring,
        time: Substring
    ) -> Int64? {
        let parts = time.split(separator: ":", omittingEmptySubsequences: false)
        guard let day = Int64(digits: day), (1...31).contains(day),
            let index = months.firstIndex(where: { $0.hasSameBytes(as: month) }),
            year.utf8.count == 4, let year = Int64(digits: year), parts.count == 3,
            let hour = Int64(digits: parts[0]), hour < 24,
            let minute = Int64(digits: parts[1]), minute < 60,
            // A leap second is valid.
            let second = Int64(digits: parts[2]), second <= 60
        else { return nil }
        // Years count from March 1, as above.
        let shiftedYear = index < 2 ? year - 1 : year
        let shiftedMonth = Int64(index < 2 ? index + 10 : index - 2)
        guard shiftedYear >= 0 else { return nil }
        let dayOfYear = (153 * shiftedMonth + 2) / 5 + day - 1
        let days =
            365 * shiftedYear + shiftedYear / 4 - shiftedYear / 100 + shiftedYear / 400 + dayOfYear
        return (days - 719_468) * 86_400 + hour * 3_600 + minute * 60 + second
    }

    private static func padded(_ number: Int64, _ width: Int = 2) -> String {
        let digits = String(number)
        return String(repeating: "0", count: max(0, width - digits.utf8.count)) + digits
    }
}
