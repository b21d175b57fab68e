// `spoolgate list`: the uploads in the spool, as a table for people or JSON lines for programs.

import ArgumentParser
import Gateway
import HTTPTypes
import Posix
import Spool
import UploadProtocol

struct List: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "List the uploads in the spool.",
        discussion: "Safe beside a running daemon; nothing is changed."
    )

    @OptionGroup var options: SettingsOptions

    @Flag(help: "One JSON object a line; ignore members you do not know.")
    var json = false

    func run() throws {
        try spoolgate.run { () throws(CommandFailure) in
            let spool = try openSpool(options)
            var summaries = try summaries(of: spool)
            summaries.sort {
                ($0.lastActivity, $0.id.description) < ($1.lastActivity, $1.id.description)
            }
            if json {
                for summary in summaries { print(summary.json.text) }
            } else {
                printTable(summaries, of: spool.directory)
            }
        }
    }

    private func printTable(_ summaries: [UploadSummary], of directory: String) {
        guard !summaries.isEmpty else { return print("No uploads in \(directory).") }
        let now = WallTime.now
        var rows = [["UPLOAD", "STATE", "OFFSET", "LENGTH", "IDLE", "NEXT", "TARGET", "REASON"]]
        for summary in summaries {
            rows.append(
                [
                    summary.id.description + (summary.isInUse ? "*" : ""),
                    summary.stateWord + (summary.status.map { " \($0)" } ?? ""),
                    ByteSize.rounded(summary.offset),
                    summary.length.map { ByteSize.rounded($0) } ?? "?",
                    idleText(now.seconds - summary.lastActivity.seconds),
                    nextText(summary, now),
                    summary.creation.map { "\($0.head.method.rawValue) \($0.head.target)" } ?? "-",
                    summary.reason ?? "",
                ].map(\.forTerminal)
            )
        }
        let widths = rows[0].indices.map { column in rows.map { $0[column].count }.max() ?? 0 }
        for row in rows {
            let cells = zip(row, widths).map { cell, width in
                cell + String(repeating: " ", count: width - cell.count)
            }
            print(trimmedTail(cells.joined(separator: "  ")))
        }
    }

    private func trimmedTail(_ line: String) -> Substring {
        line.prefix(upTo: line.lastIndex { $0 != " " }.map(line.index(after:)) ?? line.startIndex)
    }

    /// When the queue tries an upload next: `5m`; or that it waits for its client to ask.
    private func nextText(_ summary: UploadSummary, _ now: WallTime) -> String {
        guard summary.queue == .deferred else { return "-" }
        guard let next = summary.nextAttempt else { return "client" }
        return next <= now ? "now" : idleText(next.seconds - now.seconds)
    }

    /// Seconds as the largest whole unit: `3h`.
    private func idleText(_ seconds: Int64) -> String {
        switch seconds {
        case ..<60: "\(max(0, seconds))s"
        case ..<3_600: "\(seconds / 60)m"
        case ..<86_400: "\(seconds / 3_600)h"
        default: "\(seconds / 86_400)d"
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

/// Every upload of a spool.
func summaries(of spool: Spool) throws(CommandFailure) -> [UploadSummary] {
    var summaries: [UploadSummary] = []
    do throws(SpoolError) {
        try spool.forEachUpload { summaries.append($0) }
    } catch {
        throw CommandFailure(code: .unavailable, sentence: error.sentence)
    }
    return summaries
}

extension UploadSummary {
    /// The upload as one JSON object.
    var json: JSON { .object(jsonMembers) }

    /// The members of that object.
    var jsonMembers: [(name: String, value: JSON)] {
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
            ("target", creation.map { .string($0.head.target) } ?? .null),
            ("resource", creation.map { .string($0.resourcePath) } ?? .null),
            ("attempts", .integer(Int64(attempts))),
            ("next-attempt", nextAttempt.map { .string($0.description) } ?? .null),
            ("whole-since", wholeSince.map { .string($0.description) } ?? .null),
            ("reason", reason.map { .string($0) } ?? .null),
        ]
    }
}
