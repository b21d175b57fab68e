// Dates in fields: written dates and the two obsolete forms can be read.

import SpoolgateUploadProtocol
import Testing

@Suite("Dates in fields")
struct HTTPDateTests {
    private static let now: Int64 = 1_795_000_000

    @Test("the three forms of RFC 9110 §5.6.7 are one moment")
    func forms() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] { #expect(HTTPDate.seconds(text, now: Self.now) == 784_111_777, "\(text)") }
        // The limit is 2026 plus 50 years: 76 is in the future, 77 in the past.
        #expect(
            HTTPDate.seconds("Sunday, 06-Nov-76 08:49:37 GMT", now: Self.now).map { $0 > Self.now }
                == true
        )
        #expect(
            HTTPDate.seconds("Sunday, 06-Nov-77 08:49:37 GMT", now: Self.now).map { $0 < Self.now }
                == true
        )
    }

    @Test("a written date is read as the same second")
    func roundTrip() {
        for seconds in stride(from: 0 as Int64, to: 253_402_300_799, by: 86_400 * 59 + 3_599) {
            #expect(HTTPDate.seconds(HTTPDate.text(seconds), now: Self.now) == seconds)
        }
        #expect(HTTPDate.seconds("Thu, 01 Jan 1970 00:00:00 GMT", now: Self.now) == 0)
        #expect(HTTPDate.seconds("Wed, 31 Dec 1969 23:59:59 GMT", now: Self.now) == -1)
        #expect(HTTPDate.seconds("Tue, 29 Feb 2028 23:59:60 GMT", now: Self.now) == 1_835_481_600)
    }

    @Test(
        "anything else is not a date",
        arguments: [
            "", "yesterday", "0", "Sun, 06 Nov 1994 08:49:37", "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 00 Nov 1994 08:49:37 GMT", "Sun, 06 Nop 1994 08:49:37 GMT",
            "Sun, 06 Nov 94 08:49:37 GMT", "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:60:00 GMT", "Sun, 06 Nov 1994 8:49 GMT",
            "Sun, 06 Nov 1994 08:49:-1 GMT", "Sunday, 06-Nov-1994 08:49:37 GMT",
        ]
    )
    func wrong(text: String) { #expect(HTTPDate.seconds(text, now: Self.now) == nil) }
}
