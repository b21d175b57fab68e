// Uploads whose data file does not match the record, as on a damaged disk: every request gets a response or a closed
// connection, and none ends the daemon.

import Foundation
import HTTPTypes
@testable import SpoolgateDelivery
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@testable import SpoolgateRequests
@testable import SpoolgateSettings
@testable import SpoolgateSpool

@Suite struct MisfitTests {
    enum Place: CaseIterable {
        case receiving, deferred, failed, indeterminate, held, delivered
    }

    private func upload(
        in place: Place
    ) throws -> (test: GatewayUnderTest, location: String) {
        let deeds: [QueueScene.Deed] =
            switch place {
            case .failed: [.responses(422)]
            case .indeterminate: [.breaksOff]
            case .deferred, .held: [.responses(503)]
            case .receiving, .delivered: []
            }
        let origin = try QueueScene.origin(deeds)
        let test = try QueueScene.gateway(origin.target) { _, route in
            if place == .failed { route.reply = .accepted }
            route.honoursIdempotencyKey = place == .deferred || place == .held
            route.queue.minimumBackoff = .seconds(3_600)
            route.queue.maximumBackoff = .seconds(3_600)
        }
        if place == .failed { try test.gateway.deliveries.startQueue() }
        let isComplete = place != .receiving
        let creation = ScriptedExchange.creation(
            ["0123456789"],
            complete: isComplete,
            uploadLength: isComplete ? nil : 20
        )
        let location = try #require(test.serve(creation).location ?? creation.record.location)
        switch place {
        case .failed, .indeterminate: try test.waitUntil(location, isIn: .hold)
        case .held:
            try test.withUpload(location) { try $0.hold(.held, reason: "held by a person") }
        case .receiving, .deferred, .delivered: break
        }
        return (test, location)
    }

    @Test(
        "no request on an upload whose data file is too short or too long stops the daemon",
        arguments: Place.allCases
    )
    func misfit(_ place: Place) throws {
        for size in [0, 4, 9, 10, 11, 30] {
            for step in 0..<Self.requestCount {
                let (test, location) = try upload(in: place)
                try test.resizeData(of: location, to: size)
                let record = test.serve(Self.request(step, on: location, size: Int64(size)))
                #expect(record.head != nil || record.isAborted, "\(place) \(size) \(step)")
            }
        }
    }

    @Test(
        "an append to a failed upload that was truncated gets the upstream's response, with or without content",
        arguments: [ContentLength.unknown, .known(0)]
    )
    func cutBack(length: ContentLength) throws {
        let (test, location) = try upload(in: .failed)
        try test.resizeData(of: location, to: 4)
        let record = test.serve(.append(location, at: 4, length: length))
        #expect(record.status == 422)
        #expect(test.log.level(of: "spool error") == nil)
    }

    private static let versions: [Int?] = [nil, 3, 5, 6, 8, 10]
    private static let requestCount = 8

    private static func request(
        _ step: Int,
        on location: String,
        size: Int64
    ) -> ScriptedExchange {
        let version = versions[step % versions.count]
        switch step {
        case 0, 1: return .retrieval(location, version: step == 0 ? 5 : 10)
        case 2: return .append(location, at: size, length: .unknown)
        case 3: return .append(location, at: size)
        case 4: return .append(location, at: size, ["x"], length: .unknown)
        case 5: return .append(location, at: size, complete: false, length: .unknown)
        case 6:
            return .append(
                location,
                at: size,
                length: .unknown,
                version: version,
                fields: [.uploadLength: "\(size)"]
            )
        default: return .cancellation(location)
        }
    }
}

extension GatewayUnderTest {
    /// Resizes an upload's data file, if any; below its promise, it lowers the record's promise, as recovery does.
    fileprivate func resizeData(of location: String, to size: Int) throws {
        let upload = try spool.lock(id(location), until: .after(.seconds(10)), requestRelease: {})
        guard let upload, let data = upload.content.data else { return }
        defer { upload.unlock() }
        if let durable = upload.record.state.durable, durable > Int64(size) {
            try upload.record.write { $0.durable = Int64(size) }
        }
        #expect(ftruncate(data.descriptor.number, off_t(size)) == 0)
    }
}
