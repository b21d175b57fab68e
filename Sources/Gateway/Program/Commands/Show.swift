// `spoolgate show`: everything in the spool about one upload, for a person or a program.
//
// Invariants: the command only reads; values of fields that carry credentials are not shown.

import ArgumentParser
import HTTPTypes
import SpoolgateExchange
import SpoolgatePosix
import SpoolgateRequests
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import SpoolgateUpstream

struct Show: SpoolgateCommand {
    static let configuration = CommandConfiguration(
        abstract: "Show everything known about one upload.",
        discussion: """
            Safe while a daemon runs; nothing is changed. The values of fields that carry \
            credentials are left out.
            """
    )

    @OptionGroup var options: SettingsOptions

    @Argument(
        help: .value("upload", "The identity of the upload."),
        transform: readUpload
    )
    var id: UploadID

    @Flag(help: "Print one JSON object; ignore unknown members.")
    var json = false

    func perform() throws(CommandFailure) {
        let settings = try options.settings()
        let spool = try openSpool(settings)
        guard let summary = try withSpoolErrors(try spool.look(at: id)) else {
            throw CommandFailure(
                .unknownUpload,
                "\(id): no such upload in \(spool.directory): it was removed, or was an ordinary "
                    + "upload, which only the log records"
            )
        }
        let fields = summary.creation?.shownFields(settings) ?? []
        let shares = DaemonRequest(settings.adminSocket).shares(of: id)
        if json {
            print(line(summary, fields, shares, settings))
        } else {
            printLines(summary, fields, shares, settings)
        }
    }

    private func line(
        _ summary: UploadSummary,
        _ fields: [(name: String, value: String)],
        _ shares: ContentShares?,
        _ settings: Settings
    ) -> String {
        let shown = shares.map { shares -> JSON in
            .object([
                ("nginx", .integer(shares.nginx)), ("gateway", .integer(shares.gateway)),
                ("result", .string(shares.path?.label)),
            ])
        }
        return JSON.line(
            summary.jsonMembers(settings) + [
                ("remote", .string(summary.creation?.remoteAddress)),
                (
                    "fields",
                    .array(
                        fields.map {
                            .object([("name", .string($0.name)), ("value", .string($0.value))])
                        }
                    )
                ),
                ("written", shown ?? .null),
            ]
        )
    }

    private func printLines(
        _ summary: UploadSummary,
        _ fields: [(name: String, value: String)],
        _ shares: ContentShares?,
        _ settings: Settings
    ) {
        func line(_ name: String, _ value: String?) {
            guard let value else { return }
            print(name + String(repeating: " ", count: max(1, 15 - name.count)) + value.forTerminal)
        }
        line("upload", "\(summary.id)\(summary.isInUse ? " (in use)" : "")")
        line("state", summary.stateWord)
        line("node", summary.node)
        line("reason", summary.reason)
        line("offset", "\(summary.offset)")
        line("length", summary.length.map { "\($0)" } ?? "unknown")
        line("written", shares?.words)
        line("attempts", "\(summary.attempts)")
        line("next attempt", summary.nextAttempt?.description)
        line("promise", summary.creation?.promise.rawValue)
        line("waits for", summary.awaited)
        line("created", summary.creation?.created.description)
        line("complete since", summary.completeSince?.description)
        line("last activity", summary.lastActivity.description)
        line("disk usage", ByteSize.rounded(summary.diskUsage))
        line("response", summary.status.map { "\($0)" })
        guard let creation = summary.creation else { return }
        line("route", creation.route)
        line("owner", creation.principal?.text)
        line("client", creation.remoteAddress)
        line("resource", creation.resourcePath)
        let target = creation.head.target.shownTarget(withQuery: settings.showsQueries)
        line("request", "\(creation.head.method.rawValue) \(target)")
        for field in fields { line("", "\(field.name): \(field.value)") }
    }
}

extension UploadCreation {
    private static let secret: Set = [
        "authorization", "cookie", "proxy-authorization", "set-cookie",
    ]

    /// Returns the creation's fields, with `(not shown)` for credentials, including fields that the settings name.
    fileprivate func shownFields(_ settings: Settings) -> [(name: String, value: String)] {
        let own = settings.routes[exactly: route]?.fields.credentialFields ?? []
        return head.fields.map { field in
            let isSecret =
                Self.secret.contains(field.name.canonicalName) || own.contains(field.name)
            return (field.name.rawName, isSecret ? "(not shown)" : field.value)
        }
    }
}
