// Final responses that would make tus-js-client upload everything again are sent as 424, at once and when stored;
// creations without content, whose clients take a 104 for final.

import HTTPTypes
import Logging
@testable import SpoolgateDelivery
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@testable import SpoolgateRequests
@testable import SpoolgateSettings
@testable import SpoolgateSpool

@Suite struct NotRepeatedTests {
    @Test("an unknown outcome is 424, the second time too")
    func unknown() throws {
        let origin = try QueueScene.origin([.breaksOff])
        let test = try QueueScene.gateway(origin.target)
        let location = test.createPartial("hell", uploadLength: 5, version: 5)
        for (offset, rest) in [(4, "o"), (5, "")] {
            let record = test.serve(.append(location, at: Int64(offset), [.text(rest)], version: 5))
            #expect(record.status == 424)
            #expect(record[.uploadComplete] == "?1")
        }
        #expect(origin.requests.count == 1)
    }

    @Test("a creation without content gets no 104 and no heartbeat; one with some does")
    func noContent() throws {
        let origin = try LoopbackOrigin(status: "201 Created")
        let test = try GatewayUnderTest(origin.target) { settings, _ in
            settings.interim.heartbeat = .nanoseconds(1)
        }
        // Heartbeats occur here, so their absence below counts.
        #expect(test.serve(.creation(["x"])).interims.count > 1)
        for complete in [true, false] {
            let empty = test.serve(.creation([], complete: complete, length: .known(0)))
            #expect(empty.status == 201)
            #expect(empty.interims.isEmpty)
            let chunked = test.serve(.creation([], complete: complete, length: .unknown))
            #expect(chunked.interims.first?.fields[.location] != nil)
            let some = test.serve(.creation(["x"], complete: complete))
            #expect(some.interims.first?.fields[.location] != nil)
        }
    }

    @Test(
        "an alias serves an unknown version, with its 104, until a reload removes it"
    )
    func alias() throws {
        let test = try GatewayUnderTest { settings, _ in settings.interopAliases = [11: 10] }
        func create() -> ScriptedExchange.Record {
            test.serve(.creation(["x"], complete: false, version: 11))
        }
        let served = create()
        #expect(served.interims.first?.fields[.uploadDraftInteropVersion] == "11")
        #expect(served[.uploadDraftInteropVersion] == "11")
        test.reload { $0.interopAliases = [:] }
        #expect(create().interims.isEmpty)
    }

    @Test("an unknown version is logged once, with the setting that serves it")
    func unknownVersion() throws {
        let test = try GatewayUnderTest { settings, _ in settings.interopAliases = [13: 10] }
        for version in [11, 11, 12, 13, 10, 999_999] {
            _ = test.serve(.creation(["x"], complete: false, version: version))
        }
        _ = test.serve(.creation(["x"], complete: false, version: nil))
        let line = "unknown interop version"
        #expect(test.log.values(of: "version", in: line) == ["11", "12"])
        #expect(
            test.log.values(of: "setting", in: line)
                == ["interop-alias: {11: 10}", "interop-alias: {12: 10}"]
        )
        #expect(test.log.level(of: line) == .warning)
    }
}
