// `spoolgate list`: the uploads in the spool, as a table or counts for people, or as JSON lines for programs.
//
// Invariant: memory does not grow with the spool.

import ArgumentParser
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol

struct List: SpoolgateCommand {
    static let configuration = CommandConfiguration(
        abstract: "List the uploads in the spool.",
        discussion: """
            Safe while a daemon runs; nothing is changed. Up to \(UploadTable.sortedLimit) uploads are \
            listed longest idle first; if there are more, --sort lists the first \
            \(UploadTable.sortedLimit). On a terminal, lines are cut to its width.
            """
    )

    @OptionGroup var options: SettingsOptions
    @OptionGroup var selection: UploadSelection

    @Option(
        help: .value(
            "state",
            "Only uploads in this state; may be repeated: "
                + "\(UploadSummary.stateWords.joined(separator: ", "))."
        ),
        completion: .list(UploadSummary.stateWords),
        transform: reading(
            "is not a state; use \(UploadSummary.stateWords.joined(separator: ", "))."
        ) { UploadSummary.stateWords.contains($0) ? $0 : nil }
    )
    var state: [String] = []

    @Option(
        help: .value("order", "size: largest on the disk first; age: longest idle first."),
        completion: .list(UploadOrder.Kind.allCases.map(\.rawValue)),
        transform: reading("is not an order; use size or age.") { UploadOrder.Kind(rawValue: $0) }
    )
    var sort: UploadOrder.Kind?

    @Flag(help: "Count the uploads by state, route and age, and print the oldest of each.")
    var shape = false

    @Option(
        help: .value(
            "duration",
            "Repeat the listing on the terminal at this interval, such as 2s, until Ctrl-C."
        ),
        transform: readDuration
    )
    var watch: Duration?

    @Flag(help: "Print one JSON object per line; ignore unknown members.")
    var json = false

    func validate() throws {
        if shape, sort != nil { throw ValidationError("--shape and --sort cannot be combined.") }
        guard let watch else { return }
        if json { throw ValidationError("--watch and --json cannot be combined.") }
        if watch < .milliseconds(100) {
            throw ValidationError("The shortest interval of --watch is 100ms.")
        }
        if !Terminal.output.isThere {
            throw ValidationError("--watch requires a terminal as standard output.")
        }
    }

    func perform() throws(CommandFailure) {
        let settings = try options.settings()
        let spool = try openSpool(settings)
        if let watch {
            try Screen.redraw(every: watch) { (screen) throws(CommandFailure) in
                try look(spool, settings, on: screen)
            }
        } else if json, !shape {
            try printObjects(spool, settings)
        } else {
            try look(spool, settings, on: nil)
        }
    }

    private func forEachSelected(
        _ spool: Spool,
        at now: WallTime,
        _ body: (UploadSummary) -> Void
    ) throws(CommandFailure) {
        try withSpoolErrors(
            try spool.forEachUpload { summary in
                guard selection.admits(summary, at: now),
                    state.isEmpty || state.contains(summary.stateWord)
                else { return }
                body(summary)
            }
        )
    }

    private var isNarrow: Bool {
        selection.isNarrow || selection.olderThan != nil || !state.isEmpty
    }

    // MARK: For people

    private func look(
        _ spool: Spool,
        _ settings: Settings,
        on screen: Screen?
    ) throws(CommandFailure) {
        let now = spool.clock.now
        let progress = ProgressLine(isShown: screen == nil)
        func step(_ count: Int) { progress.show("\(count, of: "upload") read") }
        func emit(_ line: String) {
            if let screen { screen.add(line) } else { progress.print(line) }
        }
        let count: Int
        if shape {
            var shape = QueueShape(now: now)
            try forEachSelected(spool, at: now) {
                shape.add($0)
                step(shape.count)
            }
            let width = Terminal.output.size?.columns
            let lines = json ? shape.objects : shape.lines(width: width)
            lines.forEach(emit)
            count = shape.count
        } else {
            let style = UploadTable.Style(
                order: screen == nil ? sort : sort ?? .age,
                showsDisk: sort == .size,
                showsQueries: settings.showsQueries,
                width: Terminal.output.size?.columns,
                limit: screen?.rows ?? UploadTable.sortedLimit
            )
            let table = UploadTable(style, now: now, step: step, emit: emit)
            try forEachSelected(spool, at: now, table.add)
            count = table.end()
            if screen == nil, sort != nil { Self.noteLeftOut(count) }
        }
        progress.end()
        guard count == 0 else { return }
        if screen == nil { try selection.requireRoutes(of: settings) }
        if !json { emit("No \(isNarrow ? "matching " : "")uploads in \(spool.directory).") }
    }

    private static func noteLeftOut(_ count: Int) {
        guard count > UploadTable.sortedLimit else { return }
        try? StandardError().write(
            line: "spoolgate: only the first \(UploadTable.sortedLimit) of \(count) are shown",
            .notice
        )
    }

    // MARK: For programs

    private func printObjects(_ spool: Spool, _ settings: Settings) throws(CommandFailure) {
        func printObject(_ summary: UploadSummary) {
            print(JSON.line(summary.jsonMembers(settings)))
        }
        // Only IDs are kept because texts that clients choose may be long.
        var first = TopN<UploadOrder, UploadID>(limit: UploadTable.sortedLimit)
        var count = 0
        try forEachSelected(spool, at: spool.clock.now) { summary in
            count += 1
            guard let sort else { return printObject(summary) }
            first.add(UploadOrder(summary, by: sort), summary.id)
        }
        for (_, id) in first.sorted() {
            if let summary = try withSpoolErrors(try spool.look(at: id)) { printObject(summary) }
        }
        if sort != nil { Self.noteLeftOut(count) }
        if count == 0 { try selection.requireRoutes(of: settings) }
    }
}

/// Opens the spool to change uploads; throws an error if it does not exist, or a daemon sees another boot of the machine.
func openSpoolForChange(_ settings: Settings) throws(CommandFailure) -> Spool {
    let spool = try openSpool(settings)
    try withSpoolErrors(try spool.checkBoot())
    return spool
}

/// Opens the spool, as its owner if root runs the command; throws an error if the spool does not exist, because a
/// command that only reads must not create it.
func openSpool(_ settings: Settings) throws(CommandFailure) -> Spool {
    try SpoolOwner.become(ofSpool: settings.spoolDirectory)
    do throws(SpoolError) {
        return try Spool(existing: settings.spoolDirectory, node: settings.sharedNode)
    } catch {
        try requireRight([.read, .search], to: settings.spoolDirectory)
        throw CommandFailure(.unavailable, error.sentence)
    }
}
