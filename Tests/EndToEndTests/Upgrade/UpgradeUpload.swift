// One upload that one build brings into a state and another one serves, with the knowledge of its client, its upstream
// and its operator.
//
// Invariant: it can be stored and read back, so a stored spool is checked like a new one.

import Foundation
import SpoolgateTestSupport
import Testing

/// The state of an upload after the next daemon's start, as its client sees it.
enum UpgradeState: String, Codable {
    /// Not complete; the offset is between the last reported one and the number of bytes sent.
    case partial
    /// Complete, and waits for its client or for the queue.
    case waiting
    /// The interrupted attempt is safe to repeat: the queue delivers it again.
    case repeated
    /// Its response is stored, and its client can request it again.
    case answered
    /// Delivered, and its client does not request the response.
    case delivered
    /// The attempt was interrupted or got no response, and is not safe to repeat.
    case indeterminate
    /// Refused or undeliverable after it was accepted.
    case failed
    case held
    /// Cancelled, purged, or lost because nothing was promised.
    case gone
    /// Its damaged record was moved to corrupt/.
    case corrupt

    var words: Set<String> {
        switch self {
        case .partial: ["partial"]
        case .waiting: ["deferred"]
        case .repeated, .delivered: ["delivered"]
        case .answered: ["delivered", "refused"]
        case .indeterminate, .failed, .held, .corrupt: [rawValue]
        case .gone: []
        }
    }
}

/// One upload, with the knowledge of its client, its upstream and its operator.
final class UpgradeUpload: Codable {
    struct Response: Codable, Equatable {
        var status: Int
        var upstream: String?
        var content: Data
    }

    /// The name of its case, and the last segment of its target.
    let name: String
    /// The first segment of its target below `/files/`.
    let route: String
    let method: String
    let size: Int
    /// The fields that identify its client in each request.
    let fields: [String]
    let isTus: Bool
    var resource: String?
    /// The path of its status resource, if its client received 202.
    var status: String?
    /// The last offset reported to its client.
    var told = 0
    /// The bytes of content that its client has sent without being refused.
    var sent = 0
    /// The final response; nil: none, or its content is too large to be stored.
    var response: Response?
    var state: UpgradeState
    /// The number of complete requests that reached its upstream.
    var requests = 0
    /// Earlier requests, to an upstream that no longer exists.
    var earlierRequests = 0
    /// The partial uploads that it is joined from.
    var parts: [UpgradeUpload] = []
    var listed: [String: String] = [:]

    init(_ scene: UpgradeCase, isAfterPowerCut: Bool) {
        name = scene.name
        (route, method, size) = (scene.route, scene.method, scene.size)
        (fields, isTus) = (scene.fields, scene.isTus)
        state = isAfterPowerCut ? scene.stateAfterPowerCut : scene.state
    }

    /// Creates a partial upload of tus with the size of the joined one.
    init(partOf whole: UpgradeUpload, _ name: String, _ state: UpgradeState) {
        self.name = name
        (route, method, size) = (whole.route, whole.method, whole.size)
        (fields, isTus) = (whole.fields, whole.isTus)
        self.state = state
    }

    var target: String { "/files/\(route)/\(name)" }

    var id: String? { resource?.split(separator: "/").last.map(String.init) }

    /// Its content: lines that contain their position and are otherwise alike, so that a stored spool compresses well.
    var content: Data {
        if !parts.isEmpty { return parts.reduce(into: Data()) { $0 += $1.content } }
        var text = ""
        while text.utf8.count < size {
            let start = "\(name) \(text.utf8.count) "
            text += start + String(repeating: ".", count: 255 - start.utf8.count) + "\n"
        }
        return Data(text.utf8.prefix(size))
    }
}

/// A case: the steps that bring an upload into a state, and from there to its end.
struct UpgradeCase: Sendable, CustomTestStringConvertible {
    typealias Step = @Sendable (UpgradeStage, UpgradeUpload) throws -> Void

    let name: String
    var route = "plain"
    var method = "POST"
    var size = 5_000
    var fields: [String] = []
    var isTus = false
    /// Its state after a crash of the process.
    var state: UpgradeState
    /// Its state after a power failure; nil: the same.
    var cutState: UpgradeState?
    /// Brings it into the state.
    var write: Step
    var carry: Step

    var testDescription: String { name }
    var stateAfterPowerCut: UpgradeState { cutState ?? state }

    init(
        _ name: String,
        route: String = "plain",
        method: String = "POST",
        size: Int = 5_000,
        fields: [String] = [],
        isTus: Bool = false,
        _ state: UpgradeState,
        afterPowerCut cutState: UpgradeState? = nil,
        write: @escaping Step,
        carry: @escaping Step
    ) {
        self.name = name
        (self.route, self.method, self.size) = (route, method, size)
        (self.fields, self.isTus) = (fields, isTus)
        (self.state, self.cutState) = (state, cutState)
        (self.write, self.carry) = (write, carry)
    }
}
