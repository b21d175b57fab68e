// What the daemons reported by events, metrics and the list, beside what the ledger knows.

import Foundation
import SpoolgateJournal
import SpoolgatePosix

@testable import SpoolgateSpool

/// The metrics of the daemons that have ended.
final class Reports {
    private var ended: [Metrics] = []

    /// Counted at the end only: a thread of a daemon that has crashed may still count what it has reported.
    var outcomes: [RouteMetrics.Outcome: Int] {
        var outcomes: [RouteMetrics.Outcome: Int] = [:]
        for (_, counts) in ended.flatMap(\.routes) {
            for (outcome, _, count) in counts.outcomes { outcomes[outcome, default: 0] += count }
        }
        return outcomes
    }

    func add(_ metrics: Metrics) { ended.append(metrics) }
}

/// One line of the file of events.
struct ReportedEvent: Decodable {
    var event: String
    var status: Int?
    var correlation: String?

    var number: Int { correlation.flatMap { Int($0) } ?? -1 }
}

extension World {
    private func events() throws -> [ReportedEvent] {
        try FileManager.default.contentsOfDirectory(atPath: machine.root)
            .filter { $0.hasPrefix("events-") }
            .flatMap { name in
                try String(contentsOfFile: "\(machine.root)/\(name)", encoding: .utf8)
                    .split(separator: "\n")
                    .map { try JSONDecoder().decode(ReportedEvent.self, from: Data($0.utf8)) }
            }
    }

    /// All daemons have ended.
    func checkReports() throws {
        let events = try events()
        for (outcome, count) in reports.outcomes {
            let told = events.filter { $0.event == "\(outcome)" }.count
            if told != count {
                ledger.complain(3, "the metrics count \(count) x \(outcome), the events \(told)")
            }
        }
        ledger.check(events)
    }

    /// The list shows what clients were told is kept, at any time, and nothing under way that has ended for them.
    func checkList() {
        var lacking: [Ledger.Upload] = []
        var listed: [Int] = []
        let isTrue = machine.wait(.seconds(2)) {
            // An upload may change its queue, or be delivered, at this moment.
            let uploads = ledger.uploads
            let kept = uploads.filter { $0.hasPromise && $0.successes == 0 && !$0.isExcused }
            let ended = uploads.filter { $0.isSuccessKept || $0.isCancelled && $0.hasPromise }
            if kept.isEmpty, ended.isEmpty { return true }
            let all = (try? summaries(daemon.spool)) ?? []
            lacking = kept.filter { upload in
                !all.contains {
                    number(of: $0.creation) == upload.number && $0.offset >= upload.told
                }
            }
            listed = ended.map(\.number).filter { number in
                all.contains {
                    $0.queue != .delivered && self.number(of: $0.creation) == number
                }
            }
            return lacking.isEmpty && listed.isEmpty
        }
        guard !isTrue else { return }
        for number in listed {
            ledger.complain(3, "upload \(number) has ended for its client, and is listed")
        }
        for upload in lacking {
            let text = "upload \(upload.number) was kept to \(upload.told), but is not listed so"
            ledger.complain(3, text)
        }
    }
}

extension Ledger {
    func check(_ events: [ReportedEvent]) {
        for event in events {
            guard let upload = upload(event.number) else {
                complain(3, "the event \(event.event) names no upload")
                continue
            }
            let isTrue =
                switch event.event {
                case "delivered":
                    // A client without a resource hears the redirect to a login page, and a response of which it hears
                    // nothing more is not read to its end.
                    upload.successes > 0
                        || !upload.hasPromise && !upload.isSuccessHeard && event.status == 200
                            && upload.meanings.contains(.lost)
                        || upload.meanings.contains {
                            $0.status == event.status || $0 == .login && event.status == 302
                        }
                case "cancelled": upload.isCancellationSent
                case "expired": upload.mayHaveExpired
                default: true
                }
            if !isTrue {
                let status = event.status.map { " \($0)" } ?? ""
                complain(3, "upload \(event.number): the event \(event.event)\(status) is not true")
            }
        }
        for upload in uploads {
            let told = Set(events.filter { $0.number == upload.number }.map(\.event))
            let lacking =
                upload.isSuccessHeard && !told.contains("delivered")
                ? "delivered"
                : upload.isCancelled && !told.contains("cancelled")
                    ? "cancelled"
                    : upload.isAccepted && !told.contains("completed") ? "completed" : nil
            if let lacking {
                complain(
                    3,
                    "upload \(upload.number): its client heard it, but no event says \(lacking)"
                )
            }
        }
    }
}
