// The reply `accepted`: 202, the status resource, and requests that never wait for the queue.

import Foundation
import HTTPTypes
@testable import SpoolgateDelivery
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@testable import SpoolgateExchange
@testable import SpoolgateRequests
@testable import SpoolgateSettings
@testable import SpoolgateSpool

@Suite struct AcceptanceTests {

    @Test(
        "202 is sent before the upstream receives anything, and the status resource reports the rest"
    )
    func accepted() throws {
        let path = QueueScene.socketPath()
        defer { unlink(path) }
        let test = try QueueScene.gateway(.unix(path: path)) { _, route in route.reply = .accepted }
        let record = test.serve(.creation())
        #expect(record.status == 202)
        #expect(record[.uploadComplete] == "?1")
        #expect(record.offset == 5)
        let location = try #require(record.location)
        #expect(record[.link] == "<\(location)/status>; rel=\"status\"")
        #expect(record.text.contains("\"status-resource\":\"\(location)/status\""))
        #expect(test.disk.count(.sync, on: ".data") == 1, "a 202 needs one sync of the content")
        // In every dialect, a client that lost the 202 receives a success, and nothing is sent twice.
        for version in Dialect.versions {
            #expect(test.serve(.retrieval(location, version: version)).offset == 5)
        }
        #expect(test.serve(.append(location, at: 5)).status == 202)
        let waiting = test.serve(.status(location))
        #expect(waiting.status == 200)
        #expect(waiting.text.contains("\"state\":\"deferred\""))

        let origin = try QueueScene.origin([], socketPath: path)
        try test.gateway.deliveries.startQueue()
        try test.waitUntil(location, isIn: .delivered)
        let done = test.serve(.status(location))
        #expect(done.text.contains("\"state\":\"delivered\""))
        #expect(done.text.contains("\"status\":201"))
        #expect(test.serve(.append(location, at: 5)).text == "ok")
        #expect(origin.requests.count == 1)
        let stranger = ExchangeContext(owner: "somebody else")
        #expect(test.serve(.status(location, context: stranger)).status == 404)
        #expect(test.serve(.status("\(location)x")).status == 404)
    }

    @Test("while the queue delivers, no request waits for it")
    func acceptedUnderWay() throws {
        let slow = try SlowUpstream()
        let test = try QueueScene.gateway(slow.target) { _, route in route.reply = .accepted }
        try test.gateway.deliveries.startQueue()
        let location = try #require(test.serve(.creation()).location)
        try slow.waitForRequest()
        #expect(test.serve(.retrieval(location)).offset == 5)
        #expect(test.serve(.append(location, at: 5)).status == 202)
        #expect(test.serve(.status(location)).text.contains("\"state\":\"delivering\""))
        slow.gate.open()
        try test.waitUntil(location, isIn: .delivered)
        #expect(slow.origin.requests.count == 1)
    }

    @Test("an ordinary upload is accepted too, without fields of the protocol")
    func acceptedPlain() throws {
        let origin = try QueueScene.origin([])
        let test = try QueueScene.gateway(origin.target) { _, route in route.reply = .accepted }
        let record = test.serve(ScriptedExchange(.post, "/form", [:], ["hello"]))
        #expect(record.status == 202)
        #expect(record[.uploadComplete] == nil && record[.uploadOffset] == nil)
        let link = try #require(record[.link])
        let status = String(link.dropFirst().prefix { $0 != ">" })
        #expect(test.serve(ScriptedExchange(.get, status)).status == 200)
        try test.gateway.deliveries.startQueue()
        try eventually("delivered") {
            test.serve(ScriptedExchange(.get, status)).text.contains("\"state\":\"delivered\"")
        }
        #expect(origin.requests.map(\.line) == ["POST /form HTTP/1.1"])
        let cut = ScriptedExchange(.post, "/form", [:], ["hel", .fails(.truncated)])
        #expect(test.serve(cut).isAborted)
        #expect(try test.summaries().count == 1)
    }

    @Test("an accepted upload that the upstream refuses is failed and kept, and can be requeued")
    func acceptedRefused() throws {
        let origin = try QueueScene.origin([.responses(400)])
        let test = try QueueScene.gateway(origin.target) { settings, route in
            route.reply = .accepted
            settings.queueRunInterval = .milliseconds(20)
        }
        try test.gateway.deliveries.startQueue()
        let location = try #require(test.serve(.creation()).location)
        try test.waitUntil(location, isIn: .hold)
        let status = test.serve(.status(location))
        #expect(status.text.contains("\"state\":\"failed\""))
        #expect(status.text.contains("\"status\":400"))
        #expect(test.serve(.retrieval(location)).status == 410)
        #expect(test.serve(.append(location, at: 5)).status == 400)
        #expect(test.log.messages.contains("delivery failed"))

        try test.withUpload(location) { try $0.requeue(at: .now) }
        try test.waitUntil(location, isIn: .delivered)
        #expect(origin.requests.map(\.content) == Array(repeating: Array("hello".utf8), count: 2))
    }

    @Test("an offset is reported only once it is durable")
    func offsetBeforeSync() throws {
        let test = try GatewayUnderTest { settings, route in
            route.reply = .accepted
            settings.inUseTimeout = .milliseconds(10)
            route.upstream.connectTimeout = .milliseconds(1)
            route.upstream.stallTimeout = .milliseconds(1)
            route.upstream.responseTimeout = .milliseconds(1)
        }
        let location = test.createPartial("hello", method: .put)
        let id = try test.id(location).description
        // The client retrieves the offset before each sync of another request that makes the upload durable.
        let told = Monitor<[(isRecord: Bool, offset: Int64?, syncs: Int)]>([])
        let isAsking = Monitor(false)
        let gateway = test.gateway
        let disk = test.disk
        disk.watch { call, subject in
            guard call == .sync, subject.contains(id),
                !isAsking.update({ asking in
                    defer { asking = true }
                    return asking
                })
            else { return }
            let before = disk.count(.sync, on: id)
            let retrieval = ScriptedExchange.retrieval(location)
            gateway.serve(retrieval)
            let record = retrieval.record
            told.update {
                $0.append(
                    (!subject.hasSuffix(".data"), record.offset, disk.count(.sync, on: id) - before)
                )
            }
            isAsking.update { $0 = false }
        }
        let record = test.serve(.append(location, at: 5, [" you"]))
        disk.watch { _, _ in }
        #expect(record.status == 202)
        let all = told.update { $0 }
        #expect(all.contains { $0.isRecord } && all.contains { !$0.isRecord })
        for one in all {
            // An offset of 9 was made durable by the retrieval itself.
            #expect(one.offset != 9 || one.isRecord && one.syncs == 1, "\(all)")
        }
        #expect(test.serve(.retrieval(location)).offset == 9)
    }
}
