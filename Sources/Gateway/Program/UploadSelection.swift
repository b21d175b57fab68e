// The options of `list` and `purge` that select uploads.

import ArgumentParser
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol

struct UploadSelection: ParsableArguments {
    @Option(
        help: .value("duration", "Only uploads idle for at least this long: 90s, 30m, 24h, 7d."),
        transform: readDuration
    )
    var olderThan: Duration?

    @Option(
        help: .value("name", "Only uploads of this route; may be repeated.")
    )
    var route: [String] = []

    @Option(
        help: .value(
            "name",
            "Only uploads of this owner, or '' for uploads without one; may be repeated."
        )
    )
    var owner: [String] = []

    var isNarrow: Bool { !route.isEmpty || !owner.isEmpty }

    /// Returns whether a creation matches the named routes and owners; nil, if unknown, matches only if none are named.
    func admits(_ creation: UploadCreation?) -> Bool {
        guard isNarrow else { return true }
        guard let creation else { return false }
        let principal = creation.principal ?? ""
        return (route.isEmpty || route.contains { $0.hasSameBytes(as: creation.route) })
            && (owner.isEmpty || owner.contains { ExactText($0) == principal })
    }

    func admits(_ summary: UploadSummary, at now: WallTime) -> Bool {
        let idle = now.seconds - summary.lastActivity.seconds
        return admits(summary.creation) && olderThan.map { idle >= $0.components.seconds } ?? true
    }

    /// Throws an error about the first named route that is missing from the settings.
    ///
    /// Call it only if no upload was found, because uploads may have a route that has been removed.
    func requireRoutes(of settings: Settings) throws(CommandFailure) {
        guard let strange = route.first(where: { settings.routes[exactly: $0] == nil }) else {
            return
        }
        let known = settings.routes.keys.sorted().joined(separator: ", ")
        throw CommandFailure(
            .unknownUpload,
            "--route \(strange): no uploads found, and no such route in the settings, "
                + "which have: \(known)"
        )
    }
}
