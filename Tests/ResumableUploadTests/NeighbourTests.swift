// Transfers to a server that fails at their start or in the middle continue once it works again.

import Foundation
import HTTPTypes
import SpoolgatePosix
import SpoolgateTestSupport
import Testing

@testable import ResumableUpload

@Suite("A failing server")
struct NeighbourTests {
    /// Without the one that starts a 201, which is a response.
    private static let troubles = BadNeighbour.Trouble.failures.filter { $0 != .closesInAnswer }

    private var options: Upload.Options {
        var options = quickOptions()
        options.connection.stall = .seconds(1)
        options.connection.responseTimeout = .seconds(1)
        // On a busy machine a failure may cost several attempts with doubling pauses.
        options.connection.retryFor = .seconds(3600)
        return options
    }

    /// An upload that counts its waits.
    private func upload(
        _ bytes: [UInt8],
        to neighbour: BadNeighbour,
        counting waits: Monitor<Int>
    ) -> Upload {
        Upload(
            .bytes(bytes),
            to: neighbour.base + "/files",
            options: options,
            onEvent: { event in
                if case .waiting = event { waits.update { $0 += 1 } }
            }
        )
    }

    @Test(
        "an upload that began during a failure is accepted once the server recovers",
        arguments: troubles
    )
    func begins(trouble: BadNeighbour.Trouble) async throws {
        let server = try UploadOrigin()
        let neighbour = try BadNeighbour(before: server.origin.port)
        try neighbour.become(trouble)
        let bytes = pattern(400_000)
        let waits = Monitor(0)
        let upload = upload(bytes, to: neighbour, counting: waits)
        async let response = upload.run()
        // At least one attempt used a new connection after a failure.
        try await comesTrue("it has waited twice") { waits.update { $0 >= 2 } }
        try neighbour.become(nil)
        #expect(try await response.status.code == 201)
        #expect(server.taken == [bytes])
    }

    @Test("an upload continues after every failure on its path")
    func meets() async throws {
        let server = try UploadOrigin()
        let neighbour = try BadNeighbour(before: server.origin.port)
        let waits = Monitor(0)
        let bytes = pattern(3_000_000)
        let upload = upload(bytes, to: neighbour, counting: waits)
        async let response = upload.run()
        for trouble in Self.troubles where trouble != .noName {
            let before = waits.update { $0 }
            try neighbour.become(trouble)
            try await comesTrue("it waits for \(trouble)") {
                waits.update { $0 > before } || server.taken.count == 1
            }
        }
        try neighbour.become(nil)
        #expect(try await response.status.code == 201)
        #expect(server.taken == [bytes])
    }

    @Test("a proxy timeout during the final response costs a wait, and no second upload")
    func proxyTimesOut() async throws {
        let held = Monitor(0)
        let gate = Gate()
        let server = try UploadOrigin(react: { request in
            // The first two with content get a late response.
            guard ["POST", "PATCH"].contains(request.method), held.update({ $0 < 2 }) else {
                return .serve
            }
            held.update { $0 += 1 }
            gate.pass()
            return .serve
        })
        let neighbour = try BadNeighbour(before: server.origin.port)
        try neighbour.become(.timesOut(after: .milliseconds(300)))
        let waits = Monitor(0)
        let bytes = pattern(400_000)
        let upload = upload(bytes, to: neighbour, counting: waits)
        async let response = upload.run()
        try await comesTrue("it has waited twice") { waits.update { $0 >= 2 } }
        gate.open()
        #expect(try await response.status.code == 201)
        #expect(server.taken == [bytes])
    }
}
