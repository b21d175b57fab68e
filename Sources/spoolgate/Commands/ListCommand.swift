// `spoolgate list`: the uploads in the spool, as a table for people or JSON lines for programs.
//
// Invariant: what is in memory does not grow with the spool.

import ArgumentParser
import HTTPTypes
import Journal
import Posix
import Settings
import Spool
import TextFormats
import UploadProtocol

struct List: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "List the uploads in the spool.",
        discussion: """
            Safe beside a running daemon; nothing is changed. Those without activity for longest \
            come first, where there are no more than \(UploadTable.sortedLimit).
            """
    )

    @OptionGroup var options: SettingsOptions

    @Flag(help: "One JSON object a line; ignore members you do not know.")
    var json = false

    func run() throws {
        try spoolgate.run { () throws(CommandFailure) in
            let showsQueries = try options.settings().showsQueries
            let spool = try openSpool(options)
            do throws(SpoolError) {
                if json {
                    try spool.forEachUpload {
                        print(JSON.object($0.jsonMembers(showsQueries: showsQueries)).text)
                    }
                } else {
                    let table = UploadTable(
                        now: spool.clock.now,
                        showsQueries: showsQueries
                    )
                    try spool.forEachUpload(table.add)
                    table.end(of: spool.directory)
                }
            } catch {
                throw CommandFailure(code: .unavailable, sentence: error.sentence)
            }
        }
    }
}

/// Opens the spool that exists; a command that only looks must not make one.
func openSpool(_ options: SettingsOptions) throws(CommandFailure) -> Spool {
    let settings = try options.settings()
    do throws(SpoolError) {
        return try Spool(existing: settings.spoolDirectory)
    } catch {
        throw CommandFailure(code: .unavailable, sentence: error.sentence)
    }
}

extension UploadSummary {
    /// The members of the JSON object that describes it.
    func jsonMembers(showsQueries: Bool) -> [(name: String, value: JSON)] {
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
            ("owner", creation?.principal.map { .string($0) } ?? .null),
            ("method", creation.map { .string($0.head.method.rawValue) } ?? .null),
            (
                "target",
                creation.map { .string($0.head.target.shownTarget(withQuery: showsQueries)) }
                    ?? .null
            ),
            ("resource", creation.map { .string($0.resourcePath) } ?? .null),
            ("attempts", .integer(Int64(attempts))),
            ("promise", creation.map { .string($0.promise.rawValue) } ?? .null),
            ("next-attempt", nextAttempt.map { .string($0.description) } ?? .null),
            ("whole-since", wholeSince.map { .string($0.description) } ?? .null),
            ("reason", reason.map { .string($0) } ?? .null),
        ]
    }
}
