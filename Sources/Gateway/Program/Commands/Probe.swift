// `spoolgate probe`: tests the whole path from a client to the gateway, and reports fixes.
//
// `UploadProbe` does the tests.

import ArgumentParser
import Glibc
import HTTPTypes
import SpoolgateCurl
import SpoolgateDiagnosis
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Synchronization

struct Probe: SpoolgateCommand {
    static let configuration = CommandConfiguration(
        abstract: "Test an upload URL as clients use it, and report each problem with its fix.",
        discussion: """
            Uploads to the URL in the ways that clients do, breaks connections, resumes, and prints the \
            nginx directive that fixes each problem. No upload reaches the upstream: each is left \
            incomplete and cancelled at the end. The exit status is 0 if all is well, 1 if there are \
            warnings, 69 if there are failures.
            """
    )

    enum Versions: String, CaseIterable, ExpressibleByArgument {
        case first = "1.1"
        case second = "2"
        case all

        var versions: [ClientRequest.Version] {
            switch self {
            case .first: [.http1]
            case .second: [.http2]
            case .all: [.http1, .http2]
            }
        }
    }

    @Argument(
        help: "The upload URL: https://uploads.example.org/files/.",
        transform: reading("is not an http or https URL.") { ProbeURL($0) }
    )
    var url: ProbeURL

    @Option(
        name: [.customShort("H"), .customLong("header")],
        help: .value("field", "A field to add to every request, for a login; may be repeated."),
        transform: reading("is not a field; use 'Name: value'.") { HTTPField(line: $0) }
    )
    var header: [HTTPField] = []

    @Option(help: .value("version", "The HTTP versions to test: 1.1, 2 or all."))
    var http: Versions = .all

    @Option(
        help: .value("size", "Bytes to send to measure speed, per HTTP version."),
        transform: reading("is not a size; use a form such as 32MiB.") { text in
            ByteSize.read(text).flatMap { $0 > 0 ? $0 : nil }
        }
    )
    var size: Int64 = 32 << 20

    @Option(
        help: .value(
            "origin",
            "Also test whether pages of this origin may upload: https://app.example.org."
        ),
        transform: reading("is not an origin; use a form such as https://app.example.org.") {
            CrossOrigin.isOrigin($0) ? $0 : nil
        }
    )
    var origin: String?

    @Option(
        help: .value("file", "Trust the authorities in this PEM file instead of the system's.")
    )
    var cacert: String?

    @Flag(help: "Also check this machine: nginx's configuration, socket and units; run as root.")
    var local = false

    @Option(
        help: .value(
            "command",
            "With --local: the command that prints nginx's configuration (default: nginx -T)."
        )
    )
    var nginx: String?

    @Option(
        help: .value(
            "path",
            "With --local: the daemon's admin socket (default: SPOOLGATE_ADMIN_LISTEN, "
                + "or admin.sock next to the socket in nginx's configuration)."
        )
    )
    var socket: String?

    @Flag(help: "Also test a pause of 70 seconds.")
    var thorough = false

    @Flag(help: "Print one JSON object per check, then the totals.")
    var json = false

    func validate() throws {
        if !local, nginx != nil || socket != nil {
            throw ValidationError("--nginx and --socket require --local.")
        }
        if let cacert, access(cacert, R_OK) != 0 {
            throw ValidationError("--cacert: cannot read \(cacert).")
        }
    }

    func perform() throws(CommandFailure) {
        let stop = try Stop()
        let report = FindingReport("spoolgate probe \(url.text)", json: json)
        var machine: LocalCheck?
        if local {
            let check = LocalCheck(
                of: url,
                nginx: (nginx ?? "nginx -T").split(separator: " ").map(String.init)
            )
            for finding in check.findings { report.add(finding) }
            machine = check
        }
        var options = ProbeOptions(url)
        options.fields = HTTPFields(header)
        options.versions = http.versions
        options.size = size
        options.origin = origin
        options.certificateAuthority = cacert
        options.isThorough = thorough
        if local {
            let daemon = DaemonRequest(try adminSocket(machine))
            options.contentPath = { daemon.contentPath(of: $0) }
        }
        options.lane = machine?.lane
        let probe = UploadProbe(options, isStopped: { stop.isRequested }) { finding in
            report.add(machine?.following(finding) ?? finding)
        }
        probe.run()
        if stop.isRequested {
            throw CommandFailure(.unavailable, "stopped by a signal before all checks were done")
        }
        try report.end()
    }

    /// Returns the path from the command line or the environment; otherwise a path next to nginx's socket.
    private func adminSocket(_ machine: LocalCheck?) throws(CommandFailure) -> String {
        if let socket { return socket }
        do throws(SettingsFault) {
            let settings = try Settings.load(nil, environment: Listener.processEnvironment)
            return settings.adminPath ?? machine?.adminSocket ?? settings.adminSocket
        } catch {
            throw CommandFailure(.configuration, error.description)
        }
    }
}

/// Whether a signal has asked this process to end.
private final class Stop: Sendable {
    private let flag = Atomic<Bool>(false)

    /// Starts watching for SIGINT and SIGTERM, which then no longer end this process by themselves.
    init() throws(CommandFailure) {
        let signals = Signals.block()
        do throws(SystemError) {
            try Thread.start(name: "signals") { [self] in
                while true {
                    if [.interrupt, .terminate].contains(signals.next()) {
                        flag.store(true, ordering: .relaxed)
                    }
                }
            }
        } catch {
            throw CommandFailure(.unavailable, "\(error)")
        }
    }

    var isRequested: Bool { flag.load(ordering: .relaxed) }
}
