// Dates as fields have them (RFC 9110 §5.6.7).
//
// Pure: computed from the days since 1970, without a calendar of the C library.

/// IMF-fixdate.
package enum HTTPDate {
    private static let days = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"]
    private static let months = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ]

    /// `Sun, 22 Nov 2026 16:17:38 GMT`; `seconds` since 1970-01-01 UTC, held to the years 1970 to 9999.
    package static func text(_ seconds: Int64) -> String {
        let seconds = min(max(seconds, 0), 253_402_300_799)
        let day = seconds / 86_400
        let time = seconds % 86_400
        // Counted from a March the first, leap days end a year; 400 years have 146,097 days.
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

    private static func padded(_ number: Int64, _ width: Int = 2) -> String {
        let digits = String(number)
        return String(repeating: "0", count: max(0, width - digits.utf8.count)) + digits
    }
}
