// The nodes of a shared spool.
//
// If a node crashes, CephFS ends its locks before other nodes learn the sizes of the files that it has made.

import Foundation
import SpoolgateDelivery
import SpoolgatePosix
import SpoolgateRequests

@testable import SpoolgateSpool

extension World {
    /// How long records look empty.
    private static let blindness = Duration.milliseconds(150)

    /// The records that a crashed node has made look empty for a moment.
    func hideRecords(of victim: Daemon) throws {
        let layout = victim.spool.layout
        var hidden: [(name: FileName, bytes: [UInt8], time: timespec)] = []
        try layout.walk(unread: { throw $1 }) { (found) throws(SystemError) in
            let name = FileName(found.id)
            // Another node has asked for the size of a record that it has locked.
            guard let record = try layout.openRecord(name), try record.tryLock(),
                case let status = try record.status(),
                machine.isMaker(victim.process, of: status.file)
            else { return }
            let bytes = try record.bytes(at: 0, count: Int(status.size))
            let time = timespec(tv_sec: Int(status.modified.seconds), tv_nsec: 0)
            ftruncate(record.descriptor.number, 0)
            futimens(record.descriptor.number, [time, time])
            hidden.append((name, bytes, time))
        }
        guard !hidden.isEmpty else { return }
        ledger.tell("\(hidden.count) records look empty for a moment")
        hiding.update { $0 = true }
        try SpoolgatePosix.Thread.start(name: "node") { [hiding, hidden] in
            SpoolgatePosix.Thread.pause(Self.blindness)
            for (name, bytes, time) in hidden {
                guard let record = try? layout.openRecord(name) else { continue }
                // So that others see all of it at once.
                _ = try? record.tryLock()
                pwrite(record.descriptor.number, bytes, bytes.count, 0)
                futimens(record.descriptor.number, [time, time])
            }
            hiding.update { $0 = false }
        }
    }

    /// Waits until all records have their sizes, and lets the nodes look at them again.
    func awaitRecords() {
        guard plan.sharesSpool else { return }
        _ = hiding.wait(until: .never) { $0 ? nil : true }
        for daemon in daemons { daemon.gateway.deliveries.noteChangedSpool() }
    }
}
