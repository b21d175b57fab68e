// The text of findings, for people and programs.

@testable import SpoolgateDiagnosis
import SpoolgateTextFormats
import Testing

@Suite struct FindingTests {
    @Test(
        "a line shows level, name and sentence in columns, and fixes below the sentence"
    )
    func lines() {
        #expect(Finding.ok("reach", "TLS 1.3").line == " ok    reach       TLS 1.3")
        #expect(
            Finding.skipped("cors", "not asked").line == " -     cors        not asked"
        )
        let failure = Finding(.failure, "streaming", "it buffers", fixes: ["a off;", "b;"])
        #expect(
            failure.line == """
                 FAIL  streaming   it buffers
                                   a off;
                                   b;
                """
        )
        #expect(
            Finding(.warning, "104-http2", "none\u{1b}[2J", fixes: ["x\ny"]).line
                == " warn  104-http2   none\u{fffd}[2J\n                   x\u{fffd}y"
        )
    }

    @Test("JSON shows the same as members on one line")
    func json() {
        let failure = Finding(.failure, "size", "413 \"x\"", fixes: ["a;"])
        #expect(
            failure.json.text
                == #"{"v":1,"check":"size","level":"fail","text":"413 \"x\"","fix":["a;"]}"#
        )
        var result = FindingCount()
        for level in Finding.Level.allCases { result.count(Finding(level, "a", "b")) }
        result.count(failure)
        #expect(result.line == "2 failures, 1 warning.")
        #expect(result.json.text == #"{"v":1,"failures":2,"warnings":1}"#)
        #expect(FindingCount().line == "no failures, no warnings.")
    }
}
