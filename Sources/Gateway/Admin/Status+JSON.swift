// The status as JSON, for `spoolgate status --json` and the page; spoolgate-metrics(7) lists the members.

import SpoolgateDelivery
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateRequests
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol

extension Status {
    /// The JSON object printed by `spoolgate status --json`; its members are listed in spoolgate-metrics(7).
    var json: JSON {
        var members: [(name: String, value: JSON)] = [
            ("level", .string(level.rawValue)), ("line", .string(line)),
            ("concerns", .texts(concerns)), ("version", .string(ProgramVersion.version)),
            ("build", .string(ProgramBuild.identity)), ("host", .string(host)),
            ("start", .string(start.description)), ("time", .string(now.description)),
            ("checks", .object(checks.map { ($0.name, .string($0.text)) })),
            ("threads-busy", .integer(load.busy)), ("threads-maximum", .integer(load.maximum)),
            ("receiving", .integer(receiving)), ("ordinary", .integer(ordinary)),
            ("bytes-per-second", .integer(rate)), ("counting", .boolean(isCounting)),
            ("now", .array(transfers.first.map(\.json))),
            ("failing", .array(failing.map(\.json))), ("partial", .integer(partial.count)),
            ("partial-uploads", .array(partial.first.map(\.json))),
            ("waiting", .integer(waiting.count)), ("next", .array(waiting.first.map(\.json))),
            ("needing-attention", .integer(needy.count)),
            ("needs-attention", .array(needy.first.map(\.json))),
            ("held", .integer(held.count)), ("on-hold", .array(held.first.map(\.json))),
            ("corrupt", .integer(corrupt)), ("unrecovered", .integer(unrecovered)),
            ("spool-errors", .integer(spoolErrors.count)),
            ("failures", .array(failures.map(\.json))), ("space", spaceJSON),
            ("routes", .array(routes.map { .object($0.members) })),
        ]
        if let node { members += [("node", .string(node)), ("nodes", nodesJSON)] }
        return .versioned(members)
    }

    private var nodesJSON: JSON {
        .array(
            sample.nodes.map {
                .object([("node", .string($0.name)), ("alive", .boolean($0.isAlive))])
            }
        )
    }

    private var spaceJSON: JSON {
        .object([
            ("bytes", .integer(figures.bytes)),
            ("quota", .integer(figures.quota)),
            ("reserve", .integer(figures.reserve)),
            ("free", .integer(sample.space?.freeBytes)),
            ("free-files", .integer(sample.space?.freeFiles)),
            ("last-purge", .string(sample.lastPurge?.description)),
            ("full", .texts(full.compactMap(\.fullness?.rawValue))),
        ])
    }
}

extension Transfer {
    fileprivate var json: JSON {
        .object([
            ("upload", .string(id.description)), ("route", .string(route)),
            ("owner", .string(owner)), ("client", .string(client)), ("offset", .integer(offset)),
            ("length", .integer(length)), ("bytes-per-second", .integer(rate)),
            ("seconds-left", .integer(secondsLeft)), ("connections", .integer(connections)),
        ])
    }
}

extension PartialUpload {
    fileprivate var json: JSON {
        .object([
            ("upload", .string(id.description)), ("route", .string(route)),
            ("owner", .string(owner)), ("offset", .integer(offset)), ("length", .integer(length)),
            ("last-activity", .string(lastActivity.description)),
        ])
    }
}

extension WaitingUpload {
    fileprivate var json: JSON {
        .object([
            ("upload", .string(id.description)), ("route", .string(route)),
            ("owner", .string(owner)), ("length", .integer(size)),
            ("cause", .string(cause?.rawValue)), ("complete-since", .string(since?.description)),
            ("next-attempt", .string(next?.description)), ("attempts", .integer(attempts)),
            ("reason", .string(reason)), ("question", .string(prompt)),
            ("commands", .texts(steps.map(\.command))),
        ])
    }
}

extension Route {
    fileprivate var members: [(name: String, value: JSON)] {
        [("route", .string(name)), ("upstream", .texts(targets))]
    }
}

extension FailingRoute {
    fileprivate var json: JSON {
        .object(
            route.members + [
                ("failures", .integer(run.count)), ("seconds", .integer(run.age)),
                ("several-clients", .boolean(run.isOfSeveralClients)),
                ("reached", .boolean(run.wasReached)), ("reason", .string(run.reason)),
            ]
        )
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
