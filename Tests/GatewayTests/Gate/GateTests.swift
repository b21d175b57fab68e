// No request bypasses the owner check, the authorizer, the size limit or the checks of whole uploads, whatever its
// fields and the route's settings.

import Foundation
import HTTPTypes
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Testing

@testable import SpoolgateRequests
@testable import SpoolgateSettings

@Suite("The gate")
struct GateTests {
    private static let isWhole = ProcessInfo.processInfo.environment["SPOOLGATE_GATE"] == "all"

    // Long because of some 900 requests, each in several trials.
    @Test("every kind of request obeys the rules with the default settings")
    func requests() throws {
        let world = try GateWorld()
        let route = try #require(world.route())
        var turn = Turn(isWhole: Self.isWhole)
        // All upload methods with every set of fields, and a part of the rest.
        let core = GateRequest.all.filter { request in
            [.post, .put, .patch, .get].contains(request.method) && request.isPlain
        }
        for request in Self.isWhole ? GateRequest.all : core + turn.next(600) {
            for trial in GateWorld.Trial.allCases { world.check(request, trial, on: route) }
        }
        world.finish()
        #expect(core.count > 250)
    }

    // Long because each setting meets 24 requests, and each request several trials.
    @Test("every setting alone obeys the rules")
    func settings() throws {
        let world = try GateWorld()
        var turn = Turn(isWhole: Self.isWhole)
        for setting in GateSetting.all {
            guard let route = world.route(setting) else { continue }
            for request in turn.next(Self.isWhole ? .max : 24) {
                for trial in GateWorld.Trial.allCases { world.check(request, trial, on: route) }
            }
        }
        world.finish()
    }

    // Long because of some 2,400 pairs, each with its own route and requests.
    @Test("every pair of settings obeys the rules, or is refused as a contradiction")
    func pairs() throws {
        let world = try GateWorld()
        var turn = Turn(isWhole: false)
        var (pairs, refused) = (0, 0)
        for (index, first) in GateSetting.all.enumerated() {
            for second in GateSetting.all[(index + 1)...] {
                pairs += 1
                guard let route = world.route(first, second) else {
                    refused += 1
                    continue
                }
                guard Portion.ofThisRun.includes(pairs, of: 3) else { continue }
                for request in turn.next(Self.isWhole ? 12 : 1) {
                    for trial in GateWorld.Trial.allCases { world.check(request, trial, on: route) }
                }
            }
        }
        world.finish()
        #expect(refused > 0)
        #expect(world.requests > 1_000)
    }

    @Test("every setting would get values without a row, which change it")
    func derived() throws {
        let world = try GateWorld()
        for key in RouteSettings.keys {
            let values = GateSetting.derived(key)
            #expect(!values.isEmpty, "\(key.name)")
            for value in values {
                var route = RouteSettings()
                value.change(&route, world.places)
                #expect(value.key == key.name && route != RouteSettings(), "\(key.name)")
            }
        }
    }

    @Test("settings that stream uploads contradict every setting that needs the whole")
    func contradictions() throws {
        let world = try GateWorld()
        for setting in GateSetting.all {
            var alone = RouteSettings()
            alone.upstream.targets = [.http(base: "http://127.0.0.1:1")]
            setting.change(&alone, world.places)
            guard alone.contradiction == nil, alone.needsWhole else { continue }
            for key in ["tus", "ordinary"] {
                var route = alone
                if key == "tus" { route.tus = .pass } else { route.ordinary = .pass }
                #expect(route.contradiction?.key == key, "\(setting.key)")
            }
        }
    }

    @Test(
        "every setting of a route, every field that the protocols name and every method has its row"
    )
    func complete() throws {
        #expect(Set(GateSetting.all.map(\.key)) == Set(RouteSettings.keys.map(\.name)))
        let known = Set(
            (GateRequest.protocols + GateRequest.overrides.map(\.0)).flatMap { fields in
                fields.map { $0.name.canonicalName }
            }
        ).union(GateRequest.withoutPart)
        let sources = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
            .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()
            .appending(path: "Sources/Base/UploadProtocol")
        let files = try #require(
            FileManager.default.enumerator(at: sources, includingPropertiesForKeys: nil)
        )
        var named: Set<String> = []
        for case let file as URL in files where file.pathExtension == "swift" {
            let text = try String(contentsOf: file, encoding: .utf8)
            for match in text.matches(of: /made\("([^"\\]+)"\)/) {
                named.insert(match.1.lowercased())
            }
        }
        #expect(named.count > 20)
        #expect(named.subtracting(known) == [], "these fields need a row")
        let methods = Set(GateRequest.methods.map(\.0))
        let standard: [HTTPRequest.Method] = [
            .get, .head, .post, .put, .delete, .connect, .options, .trace, .patch,
        ]
        #expect(methods.isSuperset(of: standard))
    }

    @Test("tus passed through to the upstream is limited by the size of the whole upload")
    func passedTus() throws {
        let world = try GateWorld()
        var route = try #require(world.route())
        route.tus = .pass
        route.limits.maxSize = 900
        let gateway = try GatewayUnderTest(.http(base: world.places.upstream)) { $1 = route }
        func status(_ method: HTTPRequest.Method, _ fields: HTTPFields, _ count: Int) -> Int? {
            var fields = fields
            fields[.tusResumable] = "1.0.0"
            let bytes = [UInt8](repeating: 1, count: count)
            return gateway.serve(ScriptedExchange(method, "/u", fields, [.bytes(bytes)])).status
        }
        #expect(status(.post, [.uploadLength: "900"], 0) == 201)
        #expect(status(.post, [.uploadLength: "901"], 0) == 413)
        #expect(status(.patch, [.uploadOffset: "500"], 400) == 201)
        #expect(status(.patch, [.uploadOffset: "500"], 401) == 413)
        #expect(status(.patch, [.uploadOffset: "9223372036854775807"], 1) == 413)
    }
}

/// Requests in turn, so that all settings together meet all of them.
private struct Turn {
    let isWhole: Bool
    private var position = 0

    init(isWhole: Bool) { self.isWhole = isWhole }

    /// The next `count` requests, or all.
    ///
    /// The step and the number of requests are coprime, so neighbors differ in everything.
    mutating func next(_ count: Int) -> [GateRequest] {
        let all = GateRequest.all
        guard count < all.count else { return all }
        return (0..<count).map { _ in
            position = (position + 1_009) % all.count
            return all[position]
        }
    }
}
