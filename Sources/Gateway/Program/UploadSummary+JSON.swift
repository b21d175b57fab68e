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
            ("upload", .string(id.description)),
            ("queue", .string(queue.rawValue)),
            ("state", .string(stateWord)),
            ("status", status.map { .integer(Int64($0)) } ?? .null),
            ("waits-for", awaited.map { .string($0) } ?? .null),
            ("in-use", .boolean(isInUse)),
            ("offset", .integer(offset)),
            ("length", length.map { .integer($0) } ?? .null),
            ("disk-usage", .integer(diskUsage)),
            ("last-activity", .string(lastActivity.description)),
            ("created", creation.map { .string($0.created.description) } ?? .null),
            ("route", creation.map { .string($0.route) } ?? .null),
            ("owner", creation?.principal.map { .string($0.text) } ?? .null),
            ("method", creation.map { .string($0.head.method.rawValue) } ?? .null),
            (
                "target",
                creation.map {
                    .string($0.head.target.shownTarget(withQuery: settings.showsQueries))
                }
                    ?? .null
            ),
            ("resource", creation.map { .string($0.resourcePath) } ?? .null),
            ("attempts", .integer(Int64(attempts))),
            ("promise", creation.map { .string($0.promise.rawValue) } ?? .null),
            ("next-attempt", nextAttempt.map { .string($0.description) } ?? .null),
            ("complete-since", completeSince.map { .string($0.description) } ?? .null),
            ("reason", reason.map { .string($0) } ?? .null),
        ] + ((node ?? settings.node).map { [("node", .string($0))] } ?? [])
    }
}
