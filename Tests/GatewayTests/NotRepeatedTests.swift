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
    private static let newest = Dialect.versions.upperBound

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
        let unknown = Self.newest + 1
        let test = try GatewayUnderTest { settings, _ in
            settings.interopAliases = [unknown: Self.newest]
        }
        func create() -> ScriptedExchange.Record {
            test.serve(.creation(["x"], complete: false, version: unknown))
        }
        let served = create()
        #expect(served.interims.first?.fields[.uploadDraftInteropVersion] == "\(unknown)")
        #expect(served[.uploadDraftInteropVersion] == "\(unknown)")
        test.reload { $0.interopAliases = [:] }
        #expect(create().interims.isEmpty)
    }

    @Test("an unknown version is logged once, with the setting that serves it")
    func unknownVersion() throws {
        let newest = Self.newest
        let (next, later, aliased) = (newest + 1, newest + 2, newest + 3)
        let test = try GatewayUnderTest { settings, _ in
            settings.interopAliases = [aliased: newest]
        }
        for version in [next, next, later, aliased, newest, 999_999] {
            _ = test.serve(.creation(["x"], complete: false, version: version))
        }
        _ = test.serve(.creation(["x"], complete: false, version: nil))
        let line = "unknown interop version"
        #expect(test.log.values(of: "version", in: line) == ["\(next)", "\(later)"])
        #expect(
            test.log.values(of: "setting", in: line)
                == [next, later].map { "interop-alias: {\($0): \(newest)}" }
        )
        #expect(test.log.level(of: line) == .warning)
    }
}
