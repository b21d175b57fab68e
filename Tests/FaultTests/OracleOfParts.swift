// The conditions for joined uploads: acknowledged content stays in its part until it is durable in the joined one.

import Foundation
import HTTPTypes
import SpoolgatePosix
import SpoolgateUploadProtocol

@testable import SpoolgateSettings
@testable import SpoolgateSpool

extension World {
    /// Runs after recovery.
    func checkParts() {
        for client in joiners where !client.isForgotten {
            for part in client.parts { checkPart(part, of: client) }
            // Uploads that the next lock would remove do not count.
            let made = finals(of: client).filter { final in
                let state = record(of: final.id)?.state
                let isKept = state?.durable != nil || state?.writer == daemon.spool.writer
                return isKept && final.queue != .incoming
            }
            if made.count > 1 { complain("one list of parts made \(made.map(\.id))") }
        }
    }

    func checkFinals() {
        for final in finals where final.queue == .incoming {
            complain("the walk leaves the incomplete joined upload \(final.id)")
        }
    }

    private static let uploadName = HTTPField.Name("X-Upload") ?? .contentType

    private var finals: [UploadSummary] {
        var found: [UploadSummary] = []
        try? daemon.spool.forEachUpload { summary in
            guard let creation = summary.creation, UploadKind(of: creation.head).isFinal else {
                return
            }
            found.append(summary)
        }
        return found
    }

    private func finals(of client: JoiningClient) -> [UploadSummary] {
        finals.filter { $0.creation?.head.fields[Self.uploadName] == "\(client.number)" }
    }

    /// Makes the queue's attempt that a joined upload waits for.
    func runQueue(_ client: JoiningClient) throws {
        for final in finals(of: client) where final.queue == .deferred { try runQueue(final.id) }
    }

    private func checkPart(_ part: JoiningClient.Part, of client: JoiningClient) {
        guard let id = part.id, let told = part.told else { return }
        let content = client.content(of: client.number)
        guard let seen = try? daemon.spool.look(at: id), let state = record(of: id)?.state else {
            return complain("the part \(id) is gone after offset \(told)")
        }
        switch seen.queue {
        case .incoming:
            let isForeign = state.writer != daemon.spool.writer
            let bytes = data(of: id).prefix(Int(isForeign ? state.durable ?? 0 : seen.offset))
            if !content[part.range].starts(with: bytes) {
                complain("the part \(id) differs from the sent content")
            }
            if bytes.count < told {
                complain("the part \(id) has \(bytes.count) bytes after offset \(told)")
            }
        case .delivered:
            guard let final = state.final, let joined = try? daemon.spool.look(at: final),
                let loaded = record(of: final)?.state
            else { return complain("the part \(id) is consumed by no upload") }
            if joined.queue == .delivered {
                if origin.got(client.number).isEmpty {
                    complain("\(final) is delivered, but did not reach the upstream")
                }
                return
            }
            if joined.queue == .incoming || data(of: final) != content {
                complain("the part \(id) is consumed, but \(final) lacks it")
            }
            if state.durable != nil, loaded.durable != Int64(content.count) {
                complain("the part \(id) is consumed, but \(final) is not durable")
            }
        default: complain("the part \(id) is in \(seen.queue)")
        }
    }

    private func data(of id: UploadID) -> [UInt8] {
        let path = "\(machine.root)/spool/uploads/\("\(id)".prefix(1))/\(id).data"
        return Array(FileManager.default.contents(atPath: path) ?? Data())
    }

    /// No other list of the same parts may get the result.
    func finishJoining(after fault: Fault?) throws {
        for client in joiners {
            if client.isQueuedByOperator { try deliverByOperator(client) }
            if client.isForgotten {
                try checkConsumed(client)
                checkUpstream(of: client)
                continue
            }
            if try !client.comeBack(to: daemon, mayBeGone: mayHaveLost) {
                complain("the parts cannot be joined: \(client.statuses)")
            }
            checkParts()
            if client.isTaken { try runQueue(client) }
            // A response that the disk failed to store was still relayed, and the attempt stays without one.
            let mayBeHeld = fault?.isError == true || !client.promises && mayHaveLost
            if client.isTaken {
                let again = try client.join(on: daemon)
                if again != 201, !mayBeHeld, !isHeldByQueue(client) {
                    complain("the response to the same list is not repeated: \(client.statuses)")
                }
                if client.parts.count > 1 {
                    let other = try client.join(client.parts.indices.reversed(), on: daemon)
                    if other != 410, client.promises || !mayHaveLost {
                        complain("another list of consumed parts got \(other)")
                    }
                }
            }
            checkParts()
            try checkForgotten(client)
            checkUpstream(of: client)
        }
    }

    /// The queue delivers the upload without the client's knowledge; then it is removed.
    private func deliverByOperator(_ client: JoiningClient) throws {
        guard !client.isTaken else { return }
        for final in finals(of: client) where final.queue == .deferred {
            // After a power failure, locking an upload without a promise removes it.
            guard let upload = try daemon.spool.tryLock(final.id) else { continue }
            try upload.requeue(at: .now)
            upload.unlock()
            try runQueue(final.id)
            guard let seen = try daemon.spool.look(at: final.id), seen.queue == .delivered else {
                continue
            }
            client.isForgotten = try daemon.spool.remove(final.id, ifUnchangedSince: seen)
        }
    }

    /// Parts must not be joined again once the joined upload is removed.
    private func checkForgotten(_ client: JoiningClient) throws {
        guard client.isTaken, let id = client.location.flatMap({ UploadID($0.suffix(26)) }),
            let seen = try daemon.spool.look(at: id), seen.queue == .delivered
        else { return }
        guard try daemon.spool.remove(id, ifUnchangedSince: seen) else {
            return complain("\(id) cannot be removed")
        }
        client.isForgotten = true
        try checkConsumed(client)
    }

    private func checkConsumed(_ client: JoiningClient) throws {
        let status = try client.join(client.parts.indices.map { $0 }, on: daemon)
        if status != 410, client.promises || !mayHaveLost {
            complain("parts of a removed upload got \(status)")
        }
    }

    private func isHeldByQueue(_ client: JoiningClient) -> Bool {
        let route = settings.routes[RouteSettings.defaultName]
        return route?.reply == .accepted
            && finals(of: client).contains {
                $0.queue == .hold && machine.attempts(of: "\($0.id)") > 0
            }
    }

    private func checkUpstream(of client: JoiningClient) {
        for number in client.numbers {
            let got = origin.got(number)
            if got.count > 1 { complain("upload \(number) was delivered \(got.count) times") }
            if let other = got.first(where: { $0 != client.content(of: number) }) {
                complain("the upstream received \(other.count) wrong bytes for upload \(number)")
            }
        }
        let isUnsent = origin.got(client.number).isEmpty
        if client.isTaken, isUnsent, client.promises || !mayHaveLost, !isHeldByQueue(client) {
            complain("the joined upload was accepted, but did not reach the upstream")
        }
        let id = client.location.flatMap { UploadID($0.suffix(26)) }
        if client.isHeld, let id, machine.attempts(of: "\(id)") == 0 {
            complain("\(id) is held without an attempt")
        }
    }
}
