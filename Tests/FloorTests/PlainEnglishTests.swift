// The marks of stilted English: their number may only fall.

import Testing

@Suite("Plain English")
struct PlainEnglishTests {
    /// The most marks per 1,000 words; lower a figure once the text is below it.
    struct Bound: CustomTestStringConvertible {
        var kind: String
        var most: [Prose.Mark: Double]
        /// The least number of "if", since conditions are often written as places.
        var leastIf: Double

        var testDescription: String { kind }

        init(
            _ kind: String,
            what: Double,
            where: Double,
            whoever: Double,
            ofWhich: Double,
            fronted: Double,
            leastIf: Double = 0
        ) {
            self.kind = kind
            self.leastIf = leastIf
            most = [
                .what: what, .where: `where`, .whoever: whoever, .ofWhich: ofWhich,
                .fronted: fronted,
            ]
        }
    }

    /// The allowed excess over a bound, since single sentences are no trend.
    private static let tolerance = 0.2

    static let bounds: [Bound] = [
        Bound(
            "comments in Sources",
            what: 0.3,
            where: 0.1,
            whoever: 0.1,
            ofWhich: 0.3,
            fronted: 0.1,
            leastIf: 14
        ),
        Bound("messages in Sources", what: 0.7, where: 0.1, whoever: 0.1, ofWhich: 0.5, fronted: 0),
        Bound("comments in Tests", what: 0.2, where: 0.1, whoever: 0.1, ofWhich: 0.2, fronted: 0.2),
        Bound("messages in Tests", what: 0.3, where: 0.1, whoever: 0.7, ofWhich: 0.3, fronted: 0),
        Bound("pages", what: 0.8, where: 0.2, whoever: 0.1, ofWhich: 0.8, fronted: 0.1, leastIf: 4),
        Bound(
            "manual pages",
            what: 0.1,
            where: 0.1,
            whoever: 0.1,
            ofWhich: 0.5,
            fronted: 0.1,
            leastIf: 10
        ),
    ]

    @Test("marks of stilted English become no more frequent", arguments: bounds)
    func rates(bound: Bound) throws {
        let prose = try #require(Prose.kinds[bound.kind])
        #expect(prose.words >= 5_000)
        for (mark, most) in bound.most {
            let rate = prose.rate(of: mark)
            #expect(rate <= most + Self.tolerance, "\(mark.rawValue): \(rate) per 1,000 words")
        }
        #expect(prose.rate(of: .if) >= bound.leastIf - Self.tolerance)
    }

    @Test("each kind of text with at least 5,000 words has its bounds")
    func complete() {
        for (kind, prose) in Prose.kinds where prose.words >= 5_000 {
            let rates = Prose.Mark.allCases.map { "\($0.rawValue) \(prose.rate(of: $0))" }
            #expect(
                Self.bounds.contains { $0.kind == kind },
                "\(kind), \(prose.words) words: \(rates)"
            )
        }
    }
}
