// The operator, whose commands run in processes of their own, and the end of a world, when everything is well.

import Foundation
import HTTPTypes
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol

@testable import SpoolgateDelivery
@testable import SpoolgateJournal
@testable import SpoolgateRequests
@testable import SpoolgateSettings
@testable import SpoolgateSpool

extension World {
    func operate(_ random: inout SplitMix) throws {
        // A directory knows no keys: the name of its files takes their place.
        if random.once(in: 8) {
            return reload(ignoresKeys: random.once(in: 2) && consumer == nil)
        }
        let all = try summaries(daemon.spool)
        if random.once(in: 8) { return tryElsewhere(all.first) }
        guard !all.isEmpty else { return }
        let summary = all[random.next(all.count)]
        switch random.next(5) {
        case 0:
            try command("hold", on: summary.id) { upload, number in
                guard upload.state.phase == .deferred else { return false }
                try upload.hold(.held, reason: "wait")
                ledger.change(number) { $0.isHeld = true }
                return true
            }
        case 1, 2, 3: try requeue(summary.id)
        default: try purge(summary)
        }
    }

    /// Whether no delivery follows without the operator.
    private var areSettled: Bool {
        let all = try? summaries(daemon.spool)
        return all?.allSatisfy { ![.active, .deferred, .hold].contains($0.queue) } ?? false
    }

    func summaries(_ spool: Spool) throws -> [UploadSummary] {
        var all: [UploadSummary] = []
        try spool.forEachUpload { all.append($0) }
        return all.sorted { $0.id.description < $1.id.description }
    }

    func number(of creation: UploadCreation?) -> Int? {
        creation?.head.fields[.sim("X-Upload")].flatMap { Int($0) }
    }

    private func command(
        _ name: String,
        on id: UploadID,
        _ body: (Upload, Int) throws -> Bool
    ) throws {
        // A full disk, or an upload that is in use, refuses the command.
        guard let spool = try? openCommandSpool(), let upload = try? spool.tryLock(id) else {
            return
        }
        defer { upload.unlock() }
        let number = number(of: upload.creation) ?? -1
        consumer?.look()
        if (try? body(upload, number)) == true { ledger.tell("operator: \(name) upload \(number)") }
    }

    func requeue(_ id: UploadID, ifHeld: Bool = false) throws {
        try command("requeue", on: id) { upload, number in
            let phase = upload.state.phase
            guard ![.delivered, .receiving, .delivering].contains(phase),
                upload.state.offset == upload.state.length, !ifHeld || phase == .held
            else { return false }
            ledger.requeued(number)
            try upload.requeue(at: machine.clock.now)
            return true
        }
    }

    /// A command in a container, which sees another boot than the daemons, may not change anything.
    private func tryElsewhere(_ summary: UploadSummary?) {
        guard let spool = try? openCommandSpool(boot: "elsewhere"), let summary else { return }
        let isRefused = (try? spool.checkBoot()) == nil
        ledger.tell("operator: a command in a container\(isRefused ? " is refused" : "")")
        if !isRefused { (try? spool.tryLock(summary.id))?.unlock() }
    }

    private func purge(_ summary: UploadSummary) throws {
        guard let number = number(of: summary.creation) else { return }
        consumer?.look()
        guard let spool = try? openCommandSpool(),
            (try? spool.remove(summary.id, ifUnchangedSince: summary)) == true
        else { return }
        ledger.change(number) { $0.isRemoved = true }
        ledger.tell("operator: purge upload \(number)")
    }

    // MARK: The end

    /// Everything is well, time passes, clients return, and the operator requeues what is held.
    func finish() throws {
        ledger.tell("everything is well again")
        setDiskFull(false)
        try beWell()
        for (call, _) in calls { call.exchange.hangUp() }
        if !machine.wait(.seconds(20), { calls.allSatisfy { $0.call.exchange.isOver } }) {
            ledger.complain(5, "requests do not end after their clients have left")
        }
        noteCalls()
        awaitRecords()
        // A client cannot continue what an operator holds.
        for summary in try summaries(daemon.spool) { try requeue(summary.id, ifHeld: true) }
        passLong()
        try checkNeedsNoOperator()
        for client in clients {
            client.renewToken()
            for upload in client.uploads where client.speech != .ordinary {
                comeBack(client, upload)
            }
        }
        for _ in 0..<4 {
            for summary in try summaries(daemon.spool) { try requeue(summary.id) }
            passLong()
            if areSettled { break }
            _ = machine.wait(.milliseconds(500)) { areSettled }
        }
        consumer?.look()
        ledger.checkEnd()
        try checkNothingIsLeft()
    }

    /// The queue repeats what may be repeated until it is delivered.
    private func checkNeedsNoOperator() throws {
        let areDelivered = machine.wait(.seconds(10)) {
            for daemon in daemons { daemon.gateway.deliveries.runQueue() }
            consumer?.look()
            return ledger.delayed.isEmpty
        }
        for upload in areDelivered ? [] : ledger.delayed {
            ledger.complain(5, "upload \(upload.number) needs an operator, although all is well")
        }
    }

    /// A client that follows its protocol.
    private func comeBack(_ client: Client, _ upload: ClientUpload) {
        for _ in 0..<6 {
            guard !upload.hasEnded, upload.location != nil else { return }
            let head = client.request(.retrieval, upload)
            run(head, client)
            guard !upload.hasEnded, upload.location != nil, !ledger.hasComplaints else { return }
            if head.exchange.heard.final?.status.code != 204,
                head.exchange.heard.final?.status.code != 200
            {
                passLong()
                continue
            }
            let length = upload.content.count
            let offset = min(upload.offset ?? 0, length)
            run(
                client.request(.append, upload, from: offset, to: length, isComplete: true),
                client
            )
            if !upload.hasEnded { passLong() }
        }
        if !upload.hasEnded {
            ledger.complain(5, "upload \(upload.number) of \(client.name) cannot be finished")
        }
    }

    private func run(_ call: Call, _ client: Client) {
        takeTurns()
        start(call, of: client)
        if !machine.wait(.seconds(20), { call.exchange.isOver }) {
            ledger.complain(5, "a request of \(client.name) does not end")
            call.exchange.hangUp()
        }
        noteCalls()
    }

    private func checkNothingIsLeft() throws {
        let spool = daemon.spool
        // The queue may still close what it has delivered.
        let isEmpty = machine.wait(.seconds(10)) {
            let left = (try? summaries(spool)) ?? []
            for summary in left { _ = try? spool.remove(summary.id, ifUnchangedSince: summary) }
            return left.isEmpty
        }
        if !isEmpty {
            for summary in try summaries(spool) {
                ledger.complain(6, "an upload in \(summary.queue) cannot be purged")
            }
        }
        for daemon in daemons { checkCounts(of: daemon) }
    }

    /// Nothing is under way, and nothing is in the spool.
    private func checkCounts(of daemon: Daemon) {
        let (spool, metrics) = (daemon.spool, daemon.gateway.metrics)
        let counters = [metrics.receiving, metrics.receivingOrdinary, metrics.delivering]
        if !machine.wait(.seconds(2), { counters.allSatisfy { $0.count == 0 } }) {
            ledger.complain(6, "the metrics count what has ended: \(counters.map(\.count))")
        }
        let isFree = machine.wait(.seconds(10)) {
            spool.recount(isDue: true)
            return spool.figures.uploads == 0 && spool.figures.bytes == 0
        }
        if !isFree { ledger.complain(6, "an empty spool counts \(spool.figures)") }
    }

    /// All daemons have ended, and no upload is left.
    func checkFiles() throws {
        consumer?.checkEnd()
        // Upkeep that has begun to write a file before its process died may end it later.
        _ = machine.wait(.seconds(10)) { !Leftovers.isRunning("upkeep") }
        // Temporary files of a process that died are removed later.
        machine.pass(100_000_000)
        try checkFiles(but: consumer?.inodes ?? [])
        consumer?.removeAll()
        try checkFiles(but: [])
    }

    /// Only second names of the consumer's files may be left.
    private func checkFiles(but theirs: Set<UInt>) throws {
        _ = try openCommandSpool().recover()
        let spool = URL(fileURLWithPath: "\(machine.root)/spool")
        for name in ["queue", "corrupt", "tmp", "uploads"] {
            let files = FileManager.default.enumerator(
                at: spool.appending(path: name),
                includingPropertiesForKeys: [.isDirectoryKey]
            )
            for case let file as URL in files ?? .init()
            where try file.resourceValues(forKeys: [.isDirectoryKey]).isDirectory != true
                && (name != "tmp" || Consumer.inode(of: file.path).map(theirs.contains) != true)
            {
                ledger.complain(6, "\(name)/\(file.lastPathComponent) is left")
            }
        }
    }
}
