// A client: it follows one protocol, with cuts and mistakes as the seed decides, and tells the ledger what it hears.

import Foundation
import HTTPTypes
import SpoolgateCrypto
@testable import SpoolgateExchange
import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol

enum Speech: Int, CaseIterable, Sendable {
    case v3 = 3
    case v5 = 5
    case v6 = 6
    case v8 = 8
    case v10 = 10
    case tus = 1
    case ordinary = 0

    var version: Int? { rawValue >= 3 ? rawValue : nil }

    /// Whether an offset equal to the length means success.
    var takesOffsetForSuccess: Bool { self == .tus || mayNotSayEnd }
    /// tus-js-client does not know that the last content of a stream is the end; it then says the length.
    var mayNotSayEnd: Bool { self == .v5 || self == .v6 }
}

/// One upload of a client, from its creation on.
final class ClientUpload {
    let number: Int
    let content: [UInt8]
    var location: String?
    /// The offset that the server named last.
    var offset: Int?
    /// Whether nothing more is to be done.
    var hasEnded = false
    var isGivenUp = false
    /// Whether the last response named the offset, and no content was sent since.
    var isOffsetCurrent = false
    /// Whether the last response was 401.
    var needsToken = false

    init(number: Int, content: [UInt8]) {
        self.number = number
        self.content = content
    }

    /// Whether its client reads a stream.
    var isStream: Bool { number % 3 == 0 }
    var identity: String? { location?.split(separator: "/").last.map { String($0) } }
}

/// One request of a client under way.
final class Call {
    enum Purpose: String { case creation, append, retrieval, cancellation }

    let upload: ClientUpload
    let purpose: Purpose
    let exchange: any Conversation
    let process: Int
    /// The content that the request has not sent yet, if the client is stuck.
    var rest: [UInt8] = []
    /// The credentials of the request, which stay when its client renews them.
    var token = ""
    /// The start and the end of the request's content, once all of it was sent.
    let start: Int
    let end: Int
    let isComplete: Bool
    /// The highest offset that the client had been told when it sent the request.
    let toldBefore: Int
    /// Whether a cancellation of the upload was under way when the client sent the request.
    let isAmidCancellation: Bool

    private var status: Int? { exchange.heard.final?.status.code }
    /// Whether its content began at another offset.
    var isMisplaced: Bool { status == 409 }
    /// Whether another request of the upload was still under way.
    var isInUse: Bool { status == 423 }

    init(
        _ upload: ClientUpload,
        _ purpose: Purpose,
        _ exchange: any Conversation,
        _ process: Int,
        start: Int,
        end: Int,
        isComplete: Bool,
        toldBefore: Int,
        isAmidCancellation: Bool
    ) {
        self.start = start
        self.isAmidCancellation = isAmidCancellation
        self.toldBefore = toldBefore
        self.upload = upload
        self.purpose = purpose
        self.exchange = exchange
        self.process = process
        self.end = end
        self.isComplete = isComplete
    }
}

final class Client {
    let name: String
    let speech: Speech
    let method: HTTPRequest.Method
    let isRude: Bool
    let isFaithful: Bool
    let route: Int
    private let isConditional: Bool
    private let sendsDigests: Bool
    private(set) var uploads: [ClientUpload] = []
    private(set) var serial = 0
    private unowned let world: World

    var current: ClientUpload? { uploads.last.flatMap { $0.isGivenUp ? nil : $0 } }
    var token: String { "\(name)-\(serial)" }

    init(_ plan: ClientPlan, _ index: Int, _ world: World) {
        name = "c\(index)"
        speech = plan.speech
        method = plan.isRepeatable ? .put : .post
        isRude = plan.isRude
        isFaithful = plan.isFaithful
        route = plan.route
        isConditional = plan.isConditional
        sendsDigests = plan.sendsDigests
        self.world = world
    }

    func renewToken() { serial += 1 }

    /// What the web server says about its requests.
    private var context: ExchangeContext {
        ExchangeContext(
            route: World.name(ofRoute: route),
            owner: world.plan.namesOwners ? ExactText(name) : nil,
            interimStatuses: [104],
            remoteAddress: "192.0.2.\(name.dropFirst())"
        )
    }

    /// The fields of all its requests.
    private var commonFields: HTTPFields {
        var fields: HTTPFields = [.authorization: "Bearer \(token)"]
        if let version = speech.version { fields[.uploadDraftInteropVersion] = "\(version)" }
        if speech == .tus { fields[.sim("Tus-Resumable")] = "1.0.0" }
        return fields
    }

    /// Uses the upload resource of another owner, which must not exist for it.
    func intrude(on upload: ClientUpload, at location: String, _ method: HTTPRequest.Method) {
        let head = RequestHead(
            method: method,
            target: location,
            fields: commonFields,
            contentLength: .unknown
        )
        world.ledger.tell("\(name): \(method.rawValue) of upload \(upload.number), a stranger's")
        let exchange = world.conversation(head, context, content: [], end: .proper)
        exchange.start(with: world.daemon.gateway)
        let isOver = world.machine.wait(.seconds(15)) {
            // The daemon that pauses after a drop pauses with each call for that upload.
            if let drops = world.consumer?.service, drops.isSlow { drops.open() }
            return exchange.isOver
        }
        if !isOver {
            world.ledger.complain(5, "a stranger's request does not end")
            exchange.hangUp()
        }
        let status = exchange.heard.final?.status.code ?? 404
        // After a power failure, an upload of which its client heard nothing may have no owner, and is being removed.
        let known = world.ledger.upload(upload.number)
        let isLost = status == 423 && known?.hasTrouble == true && known?.hasPromise == false
        if status != 404, !isLost {
            world.ledger.complain(
                4,
                "upload \(upload.number) exists for a stranger, who hears \(status)"
            )
        }
    }

    // MARK: Requests

    /// Begins a new upload.
    func newUpload(size: Int) -> ClientUpload {
        let number = world.nextNumber()
        let upload = ClientUpload(number: number, content: Self.content(number, size))
        uploads.append(upload)
        world.ledger.begin(
            Ledger.Upload(
                number: number,
                client: name,
                owner: name,
                upstream: World.name(ofUpstream: route),
                content: upload.content,
                isRepeatable: isRepeatable,
                isOrdinary: speech == .ordinary,
                hasWrongDigest: hasWrongDigest(number),
                hasTrouble: world.isServiceAway
            )
        )
        return upload
    }

    private func hasWrongDigest(_ number: Int) -> Bool { sendsDigests && number % 3 == 1 }

    private func digest(_ upload: ClientUpload) -> String {
        let content = hasWrongDigest(upload.number) ? upload.content + [0] : upload.content
        let digest = Data(SHA256.digest(content.span.bytes))
        return "sha-256=:\(digest.base64EncodedString()):"
    }

    /// tus creates every upload by POST.
    private var isRepeatable: Bool { method == .put && !isConditional && speech != .tus }

    /// No two positions of two uploads are alike.
    private static func content(_ number: Int, _ size: Int) -> [UInt8] {
        (0..<size).map { UInt8(truncatingIfNeeded: ($0 &* 31 &+ ($0 >> 7)) ^ (number &* 73)) }
    }

    /// The client plans to send the content up to `end`; `arriving` bytes arrive before a cut or pause.
    func request(
        _ purpose: Call.Purpose,
        _ upload: ClientUpload,
        from: Int = 0,
        to end: Int = 0,
        isComplete: Bool = false,
        arriving: Int = .max,
        then fate: WebExchange.End = .proper,
        isLengthKnown: Bool = true
    ) -> Call {
        var fields = commonFields
        let length = upload.content.count
        fields[.sim("X-Upload")] = "\(upload.number)"
        if isRude {
            fields[.sim("X-User")] = "admin"
            // The web server's side removes what the field names.
            fields[.connection] = upload.number.isMultiple(of: 2) ? "close" : "close, X-User"
            fields[.sim("Spoolgate-Owner")] = "admin"
        }
        var method = self.method
        switch purpose {
        case .creation:
            if speech == .tus { method = .post }
            if isConditional, method == .put { fields[.ifNoneMatch] = "*" }
            if sendsDigests { fields[.reprDigest] = digest(upload) }
            if speech == .tus || isComplete && speech != .ordinary {
                fields[.uploadLength] = "\(length)"
            }
        case .append:
            method = .patch
            fields[.uploadOffset] = "\(from)"
        case .retrieval: method = .head
        case .cancellation:
            method = .delete
            world.ledger.change(upload.number) {
                $0.isCancellationSent = true
                $0.mayBeCancelled = true
            }
        }
        let hasContent = purpose == .creation || purpose == .append
        if hasContent, speech.mayNotSayEnd, upload.isStream, end == length {
            fields[.uploadLength] = "\(length)"
        }
        if hasContent {
            switch speech {
            case .ordinary: break
            case .tus:
                if purpose == .append || end > from {
                    fields[.contentType] = "application/offset+octet-stream"
                }
            case .v3: fields[.sim("Upload-Incomplete")] = isComplete ? "?0" : "?1"
            case .v5, .v6, .v8, .v10: fields[.uploadComplete] = isComplete ? "?1" : "?0"
            }
            if purpose == .append, speech != .tus {
                fields[.contentType] = "application/partial-upload"
            }
        }
        let stop = min(end, from + min(arriving, end - from))
        let isPlainEnd = stop == end && fate == .proper
        let exchange = world.conversation(
            RequestHead(
                method: method,
                target: purpose == .creation
                    ? "/files?\(upload.number)" : upload.location ?? "/nowhere",
                fields: fields,
                contentLength: !hasContent || !isLengthKnown ? .unknown : .known(Int64(end - from))
            ),
            context,
            content: hasContent ? Array(upload.content[from..<stop]) : [],
            end: isPlainEnd ? .proper : fate == .proper ? .cut : fate
        )
        let call = Call(
            upload,
            purpose,
            exchange,
            world.daemon.process,
            start: from,
            end: end,
            isComplete: isComplete,
            toldBefore: world.ledger.upload(upload.number)?.told ?? 0,
            isAmidCancellation: isBeingCancelled(upload)
        )
        call.token = token
        if hasContent { call.rest = Array(upload.content[stop..<end]) }
        // An append at a wrong offset is refused, and its credentials with it.
        let isEnd =
            hasContent && isPlainEnd && end == length && isComplete && from >= call.toldBefore
        world.ledger.sends(upload.number, hasContent ? from..<stop : 0..<0, isEnd: isEnd, token)
        let range =
            hasContent ? " \(from)..<\(stop) of \(length)\(isComplete ? ", the end" : "")" : ""
        let mark =
            isPlainEnd || !hasContent ? "" : fate == .stuck ? ", then pauses" : ", then a cut"
        world.ledger.tell(
            "\(name) (\(speech), \(method.rawValue)): \(purpose.rawValue) of upload \(upload.number)"
                + "\(range)\(mark), token \(token)"
        )
        return call
    }

    private func isBeingCancelled(_ upload: ClientUpload) -> Bool {
        world.calls.contains { $0.call.upload === upload && $0.call.purpose == .cancellation }
    }

    // MARK: Responses

    private func isEnd(_ fields: HTTPFields) -> Bool? {
        if speech == .v3 { return fields[.sim("Upload-Incomplete")].map { $0 == "?0" } }
        return fields[.uploadComplete].map { $0 == "?1" }
    }

    /// The request is over; the client interprets what it heard.
    func note(_ call: Call) {
        let (upload, heard) = (call.upload, call.exchange.heard)
        for fault in heard.faults { world.ledger.complain(3, fault) }
        for head in heard.interims { noteFields(head.fields, upload, call) }
        upload.isOffsetCurrent = false
        guard let final = heard.final, !heard.isAborted else {
            world.ledger.tell("  \(name) hears no \(heard.final == nil ? "" : "whole ")response")
            if speech == .ordinary {
                upload.hasEnded = true
                if heard.final == nil, !call.exchange.isPeerGone {
                    world.ledger.heardNothing(upload.number)
                }
            }
            return
        }
        let (status, fields) = (final.status.code, final.fields)
        upload.needsToken = status == 401
        let shown = [
            fields[.uploadOffset].map { ", offset \($0)" },
            isEnd(fields).map { $0 ? ", complete" : ", incomplete" },
        ].compactMap(\.self).joined()
        world.ledger.tell("  \(name) hears \(status)\(shown)\(Self.reason(heard.content))")
        switch call.purpose {
        case .cancellation: noteCancellation(status, isEnd(fields) ?? false, upload)
        case .retrieval: noteRetrieval(status, fields, upload, call)
        case .creation, .append:
            if speech != .tus, call.purpose == .append, call.start > 0, [307, 308].contains(status)
            {
                world.ledger.complain(4, "\(name) follows a \(status) with the tail alone")
            }
            if speech == .ordinary {
                noteOrdinary(status, upload)
            } else {
                noteAnswer(status, fields, upload, call)
            }
        }
    }

    /// The sentence for people in a problem's details.
    private static func reason(_ content: [UInt8]) -> String {
        let text = String(decoding: content, as: UTF8.self)
        guard let match = text.firstMatch(of: /"detail":"([^"]*)"/) else { return "" }
        return ": \(match.1.prefix(100))"
    }

    private func noteFields(_ fields: HTTPFields, _ upload: ClientUpload, _ call: Call) {
        if call.purpose == .creation, let location = fields[.location] {
            upload.location = location
        }
        guard let offset = fields[.uploadOffset].flatMap({ Int($0) }) else { return }
        upload.offset = offset
        upload.isOffsetCurrent = true
        // It has outlived earlier cancellations.
        if !call.isAmidCancellation {
            world.ledger.change(upload.number) { $0.mayBeCancelled = false }
        }
        let isProgress = call.purpose != .retrieval && !call.isMisplaced
        world.ledger.told(upload.number, offset, before: call.toldBefore, isProgress: isProgress)
    }

    private func noteCancellation(_ status: Int, _ isLate: Bool, _ upload: ClientUpload) {
        if !isBeingCancelled(upload) {
            world.ledger.change(upload.number) { $0.mayBeCancelled = false }
        }
        guard status == 204, !isLate else { return }
        world.ledger.change(upload.number) { $0.isCancelled = true }
        upload.hasEnded = true
    }

    private func noteRetrieval(
        _ status: Int,
        _ fields: HTTPFields,
        _ upload: ClientUpload,
        _ call: Call
    ) {
        switch status {
        case 200, 204:
            noteFields(fields, upload, call)
            if speech.takesOffsetForSuccess, upload.offset == upload.content.count {
                succeed(upload, call)
            }
        case 404:
            world.ledger.heardGone(upload.number)
            upload.location = nil
            upload.isGivenUp = true
        case 410: fail(upload, status)
        default: break
        }
    }

    private func noteOrdinary(_ status: Int, _ upload: ClientUpload) {
        upload.hasEnded = true
        switch status {
        case 202: world.ledger.heardAccepted(upload.number)
        case 200..<300: world.ledger.heardSuccess(upload.number, wasKept: false)
        default: break
        }
    }

    private func noteAnswer(
        _ status: Int,
        _ fields: HTTPFields,
        _ upload: ClientUpload,
        _ call: Call
    ) {
        let isEnd = isEnd(fields)
        switch status {
        case 202:
            noteFields(fields, upload, call)
            world.ledger.heardAccepted(upload.number)
            upload.hasEnded = true
        case 200..<300:
            if speech == .tus {
                noteFields(fields, upload, call)
                if upload.offset == upload.content.count { succeed(upload, call) }
            } else if isEnd == true {
                upload.location = fields[.location] ?? upload.location
                succeed(upload, call)
            } else {
                noteFields(fields, upload, call)
                if speech.takesOffsetForSuccess, upload.offset == upload.content.count {
                    succeed(upload, call)
                }
            }
        case 404 where call.purpose == .append:
            world.ledger.heardGone(upload.number)
            upload.isGivenUp = true
        case 409, 410, 423, 401, 403, 429, 503, 507:
            if isEnd == true || speech == .tus && status == 410 {
                fail(upload, status)
            } else {
                noteKept(status, fields, upload, call)
            }
        default:
            if isEnd == true || speech == .tus && upload.location != nil {
                fail(upload, status)
            } else {
                noteKept(status, fields, upload, call)
            }
        }
    }

    /// A response that is not the end may say what is kept.
    private func noteKept(
        _ status: Int,
        _ fields: HTTPFields,
        _ upload: ClientUpload,
        _ call: Call
    ) {
        guard speech != .tus else { return }
        if status == 409 || isEnd(fields) == false, upload.location != nil {
            noteFields(fields, upload, call)
        }
    }

    private func succeed(_ upload: ClientUpload, _ call: Call) {
        upload.hasEnded = true
        if world.acceptsAtOnce {
            world.ledger.heardAccepted(upload.number)
        } else {
            world.ledger.heardSuccess(upload.number, wasKept: call.toldBefore > 0)
        }
    }

    private func fail(_ upload: ClientUpload, _ status: Int) {
        upload.hasEnded = true
        world.ledger.heardError(upload.number, status, hasResource: upload.location != nil)
    }
}

extension HTTPField.Name {
    static func sim(_ text: String) -> HTTPField.Name {
        guard let name = HTTPField.Name(text) else { preconditionFailure("not a name: \(text)") }
        return name
    }
}
