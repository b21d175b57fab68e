// The output of commands for programs: one JSON object per line.

import HTTPTypes
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol

extension JSON {
    /// Returns the members and the format's version as one line of JSON.
    static func line(_ members: [(name: String, value: JSON)]) -> String { versioned(members).text }
}

extension UploadSummary {
    /// Returns the members of the upload's JSON object; `settings` must be those of its spool.
    func jsonMembers(_ settings: Settings) -> [(name: String, value: JSON)] {
        [
            ("upload", .string(id.description)), ("queue", .string(queue.rawValue)),
            ("state", .string(stateWord)),
            ("status", .integer(status)), ("waits-for", .string(awaited)),
            ("in-use", .boolean(isInUse)), ("offset", .integer(offset)),
            ("length", .integer(length)), ("disk-usage", .integer(diskUsage)),
            ("last-activity", .string(lastActivity.description)),
            ("created", .string(creation?.created.description)),
            ("route", .string(creation?.route)), ("owner", .string(creation?.principal?.text)),
            ("method", .string(creation?.head.method.rawValue)),
            (
                "target",
                .string(creation?.head.target.shownTarget(withQuery: settings.showsQueries))
            ),
            ("resource", .string(creation?.resourcePath)), ("attempts", .integer(attempts)),
            ("promise", .string(creation?.promise.rawValue)),
            ("next-attempt", .string(nextAttempt?.description)),
            ("complete-since", .string(completeSince?.description)), ("reason", .string(reason)),
        ] + ((node ?? settings.node).map { [("node", .string($0))] } ?? [])
    }
}
