// Random requests to a gateway that refuses every upload, by its authorizer or as anonymous: none is read or reaches
// the upstream.

import HTTPTypes
import SpoolgateExchange
import SpoolgateSpool
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@testable import SpoolgateRequests
@testable import SpoolgateSettings

final class GateFuzz {
    private let test: GatewayUnderTest
    private let upstream: LoopbackOrigin
    private let authorizer: LoopbackOrigin
    private var drawn: FuzzRequests
    private let seed: UInt64
    private(set) var requests = 0
    private static let methods: Set<String> = ["POST", "PUT", "PATCH"]

    init(seed: UInt64) throws {
        var random = SplitMix(seed: seed)
        self.seed = seed
        let upstream = try LoopbackOrigin(content: "")
        let authorizer = try LoopbackOrigin(
            status: random.one(of: "401 Unauthorized", "403 Forbidden", "302 Found", "500 Failed"),
            content: "no"
        )
        (self.upstream, self.authorizer) = (upstream, authorizer)
        let url = try ServiceURL(authorizer.base)
        let changes = (0..<4).map { _ in random.one(from: GateSetting.all) }
        let places = GateWorld.Places(
            authorizer: url,
            upstream: upstream.base,
            drop: "/nonexistent",
            handover: "/nonexistent",
            key: "/nonexistent",
            credentials: "/nonexistent"
        )
        test = try GatewayUnderTest(upstream.target) { _, route in
            for change in changes {
                var changed = route
                change.change(&changed, places)
                // The upstream stays the observed one.
                changed.upstream.targets = [upstream.target]
                if changed.contradiction == nil { route = changed }
            }
            route.authorization.url = url
        }
        drawn = FuzzRequests(random: SplitMix(seed: random.next()))
    }

    func play() throws {
        let resource = "/files/upload-resource/\(UploadID.random())"
        for number in 0..<60 {
            let exchange =
                number % 2 == 0
                ? drawn.creation() : drawn.next(.init(location: resource, size: 5))
            let record = test.serve(exchange)
            requests += 1
            let head = exchange.request
            let isUpload =
                Self.methods.contains(head.method.rawValue.uppercased())
                || head.fields.contains { field in
                    field.name.canonicalName == "x-http-method-override"
                        && Self.methods.contains(field.value.uppercased())
                }
            guard isUpload else { continue }
            #expect(!record.events.contains(.read), "seed \(seed): \(head): content was read")
        }
        let passed = upstream.all.filter { Self.methods.contains($0.method.uppercased()) }
        #expect(passed.isEmpty, "seed \(seed): the upstream received \(passed.map(\.line))")
        #expect(try test.summaries().isEmpty, "seed \(seed): an upload was made")
    }
}
