// Final responses after which tus-js-client would send everything again: told as 424, at once and from the
// store; and creations without content, whose clients take a 104 for the answer.

@testable import Delivery
import HTTPTypes
import TestSupport
import Testing
import UploadProtocol
import Upstream

@testable import Gateway
@testable import Settings
@testable import Spool

@Suite struct NotRepeatedTests {
    /// A creation, its completing append, and what the answer to that is the second time.
    private func statuses(
        of deed: QueueScene.Deed,
        version: Int,
        complete: Bool
    ) throws -> [ScriptedExchange.Record] {
        let origin = try QueueScene.origin([deed])
        let test = try QueueScene.gateway(.http(base: origin.base))
        let first = test.serve(
            .creation([.text("hello")], complete: complete, uploadLength: 5, version: version)
        )
        let location = try #require(first.location)
        func end() -> ScriptedExchange.Record {
            test.serve(.append(location, at: 5, complete: true, version: version))
        }
        let told = complete ? first : end()
        let again = end()
        #expect(origin.requests.count == 1)
        return [told, again]
    }

    @Test("an unknown outcome is 424, the second time too")
    func unknown() throws {
        for record in try statuses(of: .breaksOff, version: 5, complete: false) {
            #expect(record.status == 424)
            #expect(record[.uploadComplete] == "?1")
        }
    }

    @Test("a creation without content gets no 104, no heartbeat either; one with some does")
    func noContent() throws {
        let origin = try LoopbackOrigin(status: "201 Created")
        let test = try GatewayUnderTest(.http(base: origin.base)) { settings, _ in
            settings.interim.heartbeat = .nanoseconds(1)
        }
        // One that hears heartbeats, so that it means something that others do not.
        #expect(test.serve(.creation([.text("x")], complete: true)).interims.count > 1)
        for complete in [true, false] {
            let empty = test.serve(.creation([], complete: complete, length: .known(0)))
            #expect(empty.status == 201)
            #expect(empty.interims.isEmpty)
            let chunked = test.serve(.creation([], complete: complete, length: .unknown))
            #expect(chunked.interims.first?.fields[.location] != nil)
            let some = test.serve(.creation([.text("x")], complete: complete))
            #expect(some.interims.first?.fields[.location] != nil)
        }
    }

    @Test(
        "an alias serves a version that is not known here, with its 104, until a reload takes it away"
    )
    func alias() throws {
        let test = try GatewayUnderTest { settings, _ in settings.interopAliases = [11: 10] }
        func create() -> ScriptedExchange.Record {
            test.serve(.creation([.text("x")], complete: false, version: 11))
        }
        let served = create()
        #expect(served.interims.first?.fields[.uploadDraftInteropVersion] == "11")
        #expect(served[.uploadDraftInteropVersion] == "11")
        test.gateway.reload(Settings.withoutAliases(test.gateway.deliveries.current.settings))
        #expect(create().interims.isEmpty)
    }
}

extension Settings {
    fileprivate static func withoutAliases(_ settings: Settings) -> Settings {
        var settings = settings
        settings.interopAliases = [:]
        return settings
    }
}
