// One upload that one build of the program brings into a state and another one serves.
//
// It is what a client of the upload, its upstream and its operator know. Invariant: it can be stored and read back, so
// that a spool that was written earlier is served and judged like one that was just written.

import Foundation
import SpoolgateTestSupport
import Testing

/// What the next daemon makes of an upload, and what a client then finds.
enum UpgradeState: String, Codable {
    /// More content comes; the offset is between what its client was told and what it has sent.
    case partial
    /// It is whole and waits for its client, or for the queue.
    case waiting
    /// Its attempt was cut short and is safe to repeat: the queue sends it again.
    case repeated
    /// Its response is stored, and a client that asks gets it again.
    case answered
    /// It is delivered, and no client has asked for the response.
    case delivered
    /// Its attempt was cut short or got no answer, and is not safe to repeat.
    case indeterminate
    /// It was refused, or could not be delivered, after it was accepted.
    case failed
    /// An operator holds it.
    case held
    /// It was cancelled, purged, or lost because nothing was promised of it.
    case gone
    /// Its record is damaged, and is set aside.
    case corrupt

    /// What `list` says of it.
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

/// One upload, as those know it who have to do with it.
final class UpgradeUpload: Codable {
    /// The final response as its client has it.
    struct Response: Codable, Equatable {
        var status: Int
        var upstream: String?
        var content: Data
    }

    /// The name of its case and the last segment of its target.
    let name: String
    /// The first segment of its target, below `/files/`.
    let route: String
    let method: String
    let size: Int
    /// What its client says of itself in each request.
    let fields: [String]
    /// Whether its client speaks tus.
    let isTus: Bool
    /// The path of its upload resource.
    var resource: String?
    /// The path of its status resource, if its client was told 202.
    var status: String?
    /// The offset that its client was told last.
    var told = 0
    /// Bytes of content that its client has sent and not been refused.
    var sent = 0
    /// The final response; nil: there is none, or it has too much content to be stored.
    var response: Response?
    /// What the next daemon makes of it.
    var state: UpgradeState
    /// Requests with all of its content that reached its upstream.
    var requests = 0
    /// Those of them that reached an upstream that is no more.
    var earlierRequests = 0
    /// What it is made of.
    var parts: [UpgradeUpload] = []
    /// What `list` says of it and no build changes.
    var listed: [String: String] = [:]

    /// The upload of a case.
    init(_ scene: UpgradeCase, isAfterPowerCut: Bool) {
        name = scene.name
        (route, method, size) = (scene.route, scene.method, scene.size)
        (fields, isTus) = (scene.fields, scene.isTus)
        state = isAfterPowerCut ? scene.stateAfterPowerCut : scene.state
    }

    /// A part of an upload of tus, of as many bytes.
    init(partOf whole: UpgradeUpload, _ name: String, _ state: UpgradeState) {
        self.name = name
        (route, method, size) = (whole.route, whole.method, whole.size)
        (fields, isTus) = (whole.fields, whole.isTus)
        self.state = state
    }

    var target: String { "/files/\(route)/\(name)" }

    /// Its identity.
    var id: String? { resource?.split(separator: "/").last.map(String.init) }

    /// Its content: lines that say where they are, most of each the same, so that a spool of such uploads is stored in
    /// little room.
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

/// How an upload is brought into a state, and how it comes to its end from there.
struct UpgradeCase: Sendable, CustomTestStringConvertible {
    typealias Step = @Sendable (UpgradeStage, UpgradeUpload) throws -> Void

    let name: String
    var route = "plain"
    var method = "POST"
    var size = 5_000
    var fields: [String] = []
    var isTus = false
    /// What the next daemon makes of it, if only the process died.
    var state: UpgradeState
    /// What it makes of it after a power cut; nil: the same.
    var cutState: UpgradeState?
    /// Brings it there.
    var write: Step
    /// Takes it from there to its end.
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
