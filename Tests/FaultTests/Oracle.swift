// After every run, the files agree with the responses to clients and the requests to the upstream.

import Foundation
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol

@testable import SpoolgateSpool

extension World {
    /// Runs after recovery, before any client returns.
    func checkSpool() {
        checkParts()
        for client in clients {
            guard let identity = client.identity else { continue }
            let seen = look(at: identity)
            let queue = seen?.queue
            // A slot with a promise may have survived without the rest of the record. No offset was sent then; an
            // operator decides.
            let mayBeTorn = client.told == nil && mayBeTorn
            if queue == .corrupt, !mayBeTorn { complain("\(identity) was moved to corrupt/") }
            if let told = client.told, !client.isGivenUp, !client.hasFinal, seen == nil {
                complain("\(identity) is gone after offset \(told)")
            }
            checkQueued(client, identity, seen)
            guard let seen, ![.delivered, .corrupt].contains(seen.queue) else { continue }
            let path = "\(machine.root)/spool/uploads/\(identity.prefix(1))/\(identity).data"
            let content = FileManager.default.contents(atPath: path) ?? Data()
            // Unverified content does not count; neither do the bytes a power failure left, until they are truncated.
            let state = record(of: seen.id)?.state
            let isForeign = state?.writer != daemon.spool.writer
            let counted = isForeign ? state?.durable ?? 0 : seen.offset
            let bytes = Array(content.prefix(Int(min(counted, seen.offset))))
            if !client.content.begins(with: bytes) {
                let place = zip(bytes, client.content).prefix { $0 == $1 }.count
                complain("\(identity): content differs from byte \(place) of \(bytes.count) on")
            }
            if let told = client.told, bytes.count < told {
                complain("\(identity) has \(bytes.count) bytes after offset \(told)")
            }
        }
    }

    func finish(after fault: Fault?) throws {
        for client in clients {
            if client.isGivenUp {
                if client.isCancelled, client.location != nil {
                    let again = client.exchange(.retrieval, on: daemon)
                    let status = try client.serve(again, by: daemon)
                    if status != 404 { complain("HEAD after DELETE: \(status)") }
                }
            } else if try !client.comeBack(to: daemon, mayBeGone: mayHaveLost) {
                complain("the upload cannot be finished: \(client.statuses)")
            }
            checkEnd(of: client)
            if client.isAccepted || client.attemptsBeforeRequeue != nil, !client.isGivenUp {
                try checkQueue(of: client)
            }
            if client.isOrdinary { try runQueue() }
            if client.isRefused { try checkRefusal(of: client) }
            if client.hasFinal, !client.isGivenUp, client.location != nil {
                try checkReplay(to: client, after: fault)
            }
            checkUpstream(of: client)
        }
        try finishJoining(after: fault)
        checkSpool()
    }

    /// The gateway must repeat its own refusal as far as promised.
    private func checkRefusal(of client: UploadClient) throws {
        let toldBefore = client.told
        let status = try client.append(from: client.length, on: daemon)
        if status == 404, mayHaveLost, toldBefore == nil { return }
        if status != 422 { complain("the refusal is not repeated: \(client.statuses)") }
    }

    /// An upload acknowledged as queued must be in the queue or beyond it.
    private func checkQueued(_ client: UploadClient, _ identity: String, _ seen: UploadSummary?) {
        guard client.isAccepted || client.attemptsBeforeRequeue != nil, !client.isGivenUp else {
            return
        }
        guard let seen else {
            return complain("\(identity) was acknowledged as queued and is gone")
        }
        let attempts = machine.attempts(of: identity)
        if let before = client.attemptsBeforeRequeue, attempts == before, seen.queue == .hold {
            complain("\(identity) was requeued and is held")
        }
        var isDue = seen.queue != .deferred
        try? daemon.spool.forEachWaiting({ id, _ in id == seen.id }) {
            isDue = isDue || $0.next != nil
        }
        if seen.queue == .incoming || !isDue {
            complain("\(identity) was acknowledged as queued and has no next attempt")
        }
    }

    private func checkQueue(of client: UploadClient) throws {
        guard let identity = client.identity else { return complain("202 without an upload") }
        // If it is safe, an attempt without a response is followed by another.
        for _ in 0..<3 { try runQueue(client) }
        switch look(at: identity)?.queue {
        case .delivered:
            if got(client.number, of: client).isEmpty {
                complain("\(identity) is delivered, but did not reach the upstream")
            }
        case .hold where client.isHeldByOperator: return
        case .hold:
            // An upload that was never sent can always be sent.
            if got(client.number, of: client).isEmpty, machine.attempts(of: identity) == 0 {
                complain("\(identity) is held without an attempt")
            }
            if client.isRepeatable, client.response != .refusing {
                complain("\(identity) is held, but a retry is safe")
            }
        case let other: complain("the queue leaves \(identity) in \(String(describing: other))")
        }
    }

    /// The final response must be repeated as far as promised.
    private func checkReplay(to client: UploadClient, after fault: Fault?) throws {
        let toldBefore = client.told
        let status = try client.append(from: client.length, on: daemon)
        if status == 200 || status == 201 && isDropping { return }
        if status == 404, mayHaveLost, toldBefore == nil { return }
        if status == 410, mayBeTorn, toldBefore == nil { return }
        // A response that the disk failed to store was still relayed; its content may have been in memory.
        if fault?.isError == true, client.isHeld || status == 409 { return }
        complain("the final response is not repeated: \(client.statuses)")
    }

    private func checkEnd(of client: UploadClient) {
        guard client.isHeld, !client.hasFinal, client.requeues == 0, let identity = client.identity
        else { return }
        if client.isRepeatable, client.response != .refusing {
            complain("\(identity) is held, but a retry is safe")
        }
        // An outcome that the disk failed to store was still sent. The next lock decides, as after a crash.
        if hasError, let id = UploadID(identity) { try? daemon.spool.tryLock(id)?.unlock() }
        let queue = look(at: identity)?.queue
        if queue != .hold {
            complain("\(identity) has an unknown outcome and is in \(String(describing: queue))")
        }
        if machine.attempts(of: identity) == 0 {
            complain("\(identity) is held without an attempt")
        }
    }

    private func checkUpstream(of client: UploadClient) {
        for number in client.numbers {
            let got = got(number, of: client)
            if !client.isRepeatable, got.count > 1 + client.requeues {
                complain("upload \(number) was delivered \(got.count) times")
            }
            let content = client.content(of: number)
            if client.failed.contains(number), client.isAccepted, !got.isEmpty {
                complain("upload \(number) was refused, but reached the upstream")
            }
            if let other = got.first(where: {
                $0.count != content.count || !content.begins(with: $0)
            }) {
                complain("the upstream received \(other.count) wrong bytes for upload \(number)")
            }
        }
        if client.isRefused, !got(client.number, of: client).isEmpty {
            complain("the gateway refused an upload that reached the upstream")
        }
        if client.hasFinal, got(client.number, of: client).isEmpty {
            complain("a final response, but nothing reached the upstream")
        }
    }

    /// No file may be left, and no upload's file may be open.
    func checkPurge(after fault: Fault?) throws {
        let spool = daemon.spool
        // A request may still hold the lock after its response; purge then skips it.
        let deadline = Deadline.after(.seconds(30))
        var kept: [UploadSummary] = []
        repeat {
            var all: [UploadSummary] = []
            try spool.forEachUpload { all.append($0) }
            kept = try all.filter { try !spool.remove($0.id, ifUnchangedSince: $0) }
        } while !kept.isEmpty && !deadline.hasPassed
        for summary in kept {
            complain("\(summary.id) in \(summary.queue) cannot be purged")
        }
        func strangers() -> Set<String> {
            let spoolItself: Set = [
                "spool/format", "spool/clock", "spool/wake", "spool/purged",
            ]
            return Set(machine.model.paths.keys).subtracting(spoolItself)
                .filter { !$0.hasPrefix("spool/daemons/") && !$0.hasPrefix("fresh/") }
        }
        // Reading the queue removes names that no state needs.
        try spool.forEachWaiting({ _, _ in true }, { _ in })
        var left = strangers()
        if !left.isEmpty {
            // Purge also completes interrupted removals, and the walk removes old files in `tmp`.
            let long = timeval(tv_sec: 1_000_000_000, tv_usec: 0)
            for path in left { utimes("\(machine.root)/\(path)", [long, long]) }
            try spool.recoverOrphans(unchangedSince: .now, isDryRun: false) { id, _, outcome in
                if outcome == .setAside { complain("\(id) lost its record") }
            }
            if left.contains(where: { $0.hasPrefix("spool/tmp/") }) { _ = spool.recover() }
            left = strangers()
        }
        if !left.isEmpty { complain("purge leaves \(left.sorted())") }
        // A crashed process has closed its files.
        if fault?.isError != false {
            let open = openFiles()
            if !open.isEmpty { complain("still open: \(open)") }
        }
    }

    /// A walk must leave nothing without an upload, and no entry of a dead daemon.
    func checkWalk() {
        checkFinals()
        let spool = daemon.spool
        for (path, node) in machine.model.paths where path.hasPrefix("spool/uploads/") {
            let name = path.split(separator: "/")[3]
            let isData = name.hasSuffix(FileName.dataSuffix)
            let seen = look(at: String(isData ? name.dropLast(FileName.dataSuffix.count) : name))
            if seen == nil || isData && seen?.queue == .delivered {
                complain(
                    "the walk leaves \(path), \(machine.model.files[node]?.current.count ?? 0) bytes"
                )
            }
        }
        checkNames()
        do {
            let living = daemons.filter { !machine.isDead($0.process) }.count
            let noted = try spool.layout.daemons.names().count
            if noted != living { complain("\(noted) entries of daemons, \(living) are alive") }
        } catch { complain("\(error)") }
    }

    /// Each state that needs a name in the queue must have it.
    func checkNames() {
        let spool = daemon.spool
        do {
            let names = Set(try spool.layout.queue.names())
            try spool.forEachUpload { summary in
                guard let time = record(of: summary.id)?.state.queueTime else { return }
                let name = QueueName(time, summary.id).text
                if !names.contains(name) { complain("\(name) is missing in the queue") }
            }
        } catch { complain("\(error)") }
    }

    func record(of id: UploadID) -> LoadedRecord? {
        let file = try? daemon.spool.layout.openRecord(FileName(id), forWriting: false)
        return file.flatMap { try? LoadedRecord.read($0, of: id, knowing: nil).get() }
    }

    private func look(at identity: String) -> UploadSummary? {
        UploadID(identity).flatMap { try? daemon.spool.look(at: $0) }
    }

    /// The daemons may keep directories open.
    private func openFiles() -> [String] {
        guard let folder = opendir("/proc/self/fd") else { return ["/proc/self/fd cannot be read"] }
        defer { closedir(folder) }
        var found: [String] = []
        while let entry = readdir(folder) {
            let name = withUnsafeBytes(of: &entry.pointee.d_name) { bytes in
                String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
            }
            var raw = stat()
            // Most are directories and sockets.
            guard let number = Int32(name), fstat(number, &raw) == 0,
                raw.st_mode & S_IFMT == S_IFREG,
                let path = try? FileManager.default.destinationOfSymbolicLink(
                    atPath: "/proc/self/fd/\(name)"
                )
            else { continue }
            let place = "\(machine.root)/spool/"
            let below = path.dropFirst(place.count)
            if path.hasPrefix(place), below.contains("/"), !below.hasPrefix("daemons/") {
                found.append(path)
            }
        }
        return found
    }
}
