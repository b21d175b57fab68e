// The status as JSON, for `spoolgate status --json` and the page; spoolgate-metrics(7) lists the members.

import SpoolgateJournal
import SpoolgatePosix
import SpoolgateRequests
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol

extension Status {
    /// The JSON object printed by `spoolgate status --json`; its members are listed in spoolgate-metrics(7).
    var json: JSON {
        .versioned(
            [
                ("level", .string(level.rawValue)), ("line", .string(line)),
                ("concerns", .array(concerns.map { .string($0) })), ("version", .string(version)),
                ("build", build.map { .string($0) } ?? .null),
                ("host", .string(host)),
                ("start", .string(start.description)), ("time", .string(now.description)),
                (
                    "checks",
                    .object(checks.map { (name: $0.name, value: .string($0.text)) })
                ),
                ("threads-busy", .integer(Int64(busy))),
                ("threads-maximum", .integer(Int64(maximum))),
                ("receiving", .integer(Int64(receiving))), ("ordinary", .integer(Int64(ordinary))),
                ("bytes-per-second", .integer(rate)), ("counting", .boolean(isCounting)),
                ("now", .array(transfers.first.map(\.json))),
                ("failing", .array(failing.map(\.json))),
                ("partial", .integer(Int64(partial.count))),
                ("partial-uploads", .array(partial.first.map(\.json))),
                ("waiting", .integer(Int64(waiting.count))),
                ("next", .array(waiting.first.map(\.json))),
                ("needing-attention", .integer(Int64(needy.count))),
                ("needs-attention", .array(needy.first.map(\.json))),
                ("held", .integer(Int64(held.count))),
                ("on-hold", .array(held.first.map(\.json))),
                ("corrupt", .integer(Int64(corrupt))),
                ("unrecovered", .integer(Int64(unrecovered))),
                ("spool-errors", .integer(Int64(spoolErrors.count))),
                ("failures", .array(failures.map(\.json))), ("space", spaceJSON),
                ("routes", .array(routes.map(\.json))),
            ] + (node.map { [("node", .string($0)), ("nodes", nodesJSON)] } ?? [])
        )
    }

    private var nodesJSON: JSON {
        .array(
            sample.nodes.map { node in
                .object([("node", .string(node.name)), ("alive", .boolean(node.isAlive))])
            }
        )
    }

    private var spaceJSON: JSON {
        .object([
            ("bytes", .integer(figures.bytes)),
            ("quota", figures.quota.map { .integer($0) } ?? .null),
            ("reserve", .integer(figures.reserve)),
            ("free", sample.space.map { .integer($0.freeBytes) } ?? .null),
            ("free-files", sample.space?.freeFiles.map { .integer($0) } ?? .null),
            ("last-purge", sample.lastPurge.map { .string($0.description) } ?? .null),
            ("full", .array(full.compactMap(\.fullness).map { .string($0.rawValue) })),
        ])
    }
}

extension Transfer {
    fileprivate var json: JSON {
        .object([
            ("upload", .string(id.description)), ("route", .string(route)),
            ("owner", owner.map { .string($0) } ?? .null),
            ("client", client.map { .string($0) } ?? .null), ("offset", .integer(offset)),
            ("length", length.map { .integer($0) } ?? .null), ("bytes-per-second", .integer(rate)),
            ("seconds-left", secondsLeft.map { .integer($0) } ?? .null),
            ("connections", .integer(Int64(connections))),
        ])
    }
}

extension PartialUpload {
    fileprivate var json: JSON {
        .object([
            ("upload", .string(id.description)), ("route", .string(route)),
            ("owner", owner.map { .string($0) } ?? .null), ("offset", .integer(offset)),
            ("length", length.map { .integer($0) } ?? .null),
            ("last-activity", .string(lastActivity.description)),
        ])
    }
}

extension WaitingUpload {
    fileprivate var json: JSON {
        .object([
            ("upload", .string(id.description)), ("route", .string(route)),
            ("owner", owner.map { .string($0) } ?? .null), ("length", .integer(size)),
            ("cause", cause.map { .string($0.rawValue) } ?? .null),
            ("complete-since", since.map { .string($0.description) } ?? .null),
            ("next-attempt", next.map { .string($0.description) } ?? .null),
            ("attempts", .integer(Int64(attempts))),
            ("reason", reason.map { .string($0) } ?? .null),
            ("question", prompt.map { .string($0) } ?? .null),
            ("commands", .array(steps.map { .string($0.command) })),
        ])
    }
}

extension RouteTargets {
    fileprivate var json: JSON {
        .object([
            ("route", .string(name)), ("upstream", .array(targets.map { .string($0) })),
        ])
    }
}

extension FailingRoute {
    fileprivate var json: JSON {
        .object([
            ("route", .string(name)), ("upstream", .array(targets.map { .string($0) })),
            ("failures", .integer(Int64(run.count))), ("seconds", .integer(run.age)),
            ("several-clients", .boolean(run.isOfSeveralClients)),
            ("reached", .boolean(run.wasReached)), ("reason", .string(run.reason)),
        ])
    }
}

extension RecentFailure {
    fileprivate var json: JSON {
        .object([
            ("time", .string(time.description)), ("upload", .string(id.description)),
            ("route", .string(route)), ("reason", .string(reason)),
        ])
    }
}
