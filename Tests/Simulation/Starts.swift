// Two processes that start at once on an empty directory.

import Foundation
import SpoolgatePosix
import SpoolgateTestSupport

@testable import SpoolgateSpool

extension World {
    /// While the first process creates the spool, the second one starts again and again, and crashes at one of its
    /// calls: mostly at the first one after its look at the directory, so that it looks often.
    func startTwins() throws {
        ledger.tell("two processes start at once on an empty directory")
        for number in 0..<200 where !ledger.hasComplaints {
            let directory = "\(machine.root)/empty\(number)"
            let isMade = Monitor(false)
            let hasEnded = Monitor(false)
            try SpoolgatePosix.Thread.start(name: "second") { [ledger, seed = plan.seed] in
                var random = SplitMix(seed: seed)
                repeat {
                    let calls = Monitor(random.once(in: 4) ? random.next(60) : 1)
                    let disk = Disk { call, subject throws(SystemError) in
                        let left = calls.updateQuietly { left in
                            left -= 1
                            return left
                        }
                        if left >= 0 { return .max }
                        throw SystemError(call: call.rawValue, subject: subject, errno: EIO)
                    }
                    do { try Self.start(in: directory, disk) } catch {
                        if calls.updateQuietly({ $0 >= 0 }) {
                            ledger.complain(5, "the second process does not start: \(error)")
                        }
                    }
                } while !isMade.updateQuietly { $0 }
                hasEnded.update { $0 = true }
            }
            do { try Self.start(in: directory, Disk()) } catch {
                ledger.complain(5, "the first process does not start: \(error)")
            }
            isMade.update { $0 = true }
            _ = hasEnded.wait(until: .never) { $0 ? true : nil }
        }
    }

    private static func start(in directory: String, _ disk: Disk) throws {
        _ = try Spool(directory: directory) { options in
            (options.disk, options.writer) = (disk, "0")
        }
    }
}
