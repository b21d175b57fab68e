// One upload that one build brings into a state and another serves.
//
// Invariant: it can be read back, so a stored spool is checked like a new one.

import Foundation
import SpoolgateTestSupport
import Testing

/// The state for its client after the next daemon's start.
enum UpgradeState: String, Codable {
    /// The offset is between the last reported one and the bytes sent.
    case partial
    /// Complete; waits for its client or the queue.
    case waiting
    /// The queue repeats the interrupted attempt, which is safe.
    case repeated
    /// Its client can request the stored response again.
    case responded = "answered"
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
        case .responded: ["delivered", "refused"]
        case .indeterminate, .failed, .held, .corrupt: [rawValue]
        case .gone: []
        }
    }
}

/// An upload as its client, upstream and operator know it.
final class UpgradeUpload: Codable {
    struct Response: Codable, Equatable {
        var status: Int
        var upstream: String?
        var content: Data
    }

    /// Its case's name, and the last segment of its target.
    let name: String
    /// The first segment of its target below `/files/`.
    let route: String
    let method: String
    let size: Int
    /// They identify its client in each request.
    let fields: [String]
    let isTus: Bool
    var resource: String?
    /// The path of its status resource, after a 202.
    var status: String?
    /// The last offset reported to its client.
    var told = 0
    /// The bytes that its client has sent without refusal.
    var sent = 0
    /// nil: none, or its content is too large to be stored.
    var response: Response?
    var state: UpgradeState
    /// Complete requests that reached its upstream.
    var requests = 0
    /// Earlier requests, to an upstream that no longer exists.
    var earlierRequests = 0
    var parts: [UpgradeUpload] = []
    var listed: [String: String] = [:]

    init(_ scene: UpgradeCase, isAfterPowerCut: Bool) {
        name = scene.name
        (route, method, size) = (scene.route, scene.method, scene.size)
        (fields, isTus) = (scene.fields, scene.isTus)
        state = isAfterPowerCut ? scene.stateAfterPowerCut : scene.state
    }

    /// The partial upload of tus has the joined one's size.
    init(partOf whole: UpgradeUpload, _ name: String, _ state: UpgradeState) {
        self.name = name
        (route, method, size) = (whole.route, whole.method, whole.size)
        (fields, isTus) = (whole.fields, whole.isTus)
        self.state = state
    }

    var target: String { "/files/\(route)/\(name)" }

    var id: String? { resource?.split(separator: "/").last.map(String.init) }

    /// Lines that differ only in their position, so that a stored spool compresses well.
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

/// The steps that bring an upload into a state and from there to its end.
struct UpgradeCase: Sendable, CustomTestStringConvertible {
    typealias Step = @Sendable (UpgradeStage, UpgradeUpload) throws -> Void

    let name: String
    var route = "plain"
    var method = "POST"
    var size = 5_000
    var fields: [String] = []
    var isTus = false
    /// After a crash of the process.
    var state: UpgradeState
    /// nil: the same.
    var cutState: UpgradeState?
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
