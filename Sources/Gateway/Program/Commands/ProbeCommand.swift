// `spoolgate probe`: looks at the whole way from a client to the gateway, and says what to mend.
//
// What it does on the way is UploadProbe's; here is what a person asks for, and the signals that end it.

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
        abstract: "Look at an upload URL as clients meet it, and say what to mend.",
        discussion: """
            Uploads to the URL in all the ways that clients do, breaks connections and goes on, and \
            names the directive that mends what does not work. Nothing is ever delivered: no upload is \
            completed, and each is cancelled in the end. Exits 0 if all is well, 1 with warnings, 69 \
            with failures.
            """
    )

    /// The versions of HTTP to look at.
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
        help: "Where clients upload: https://uploads.example.org/files/.",
        transform: reading("is no http or https URL.") { ProbeURL($0) }
    )
    var url: ProbeURL

    @Option(
        name: [.customShort("H"), .customLong("header")],
        help: ArgumentHelp(
            "A field of every request, as a login needs it; may be repeated.",
            valueName: "field"
        ),
        transform: reading("is no field; write 'Name: value'.") { HTTPField(line: $0) }
    )
    var header: [HTTPField] = []

    @Option(help: ArgumentHelp("Which versions of HTTP: 1.1, 2 or all.", valueName: "version"))
    var http: Versions = .all

    @Option(
        help: ArgumentHelp("Bytes for the speed, over each version of HTTP.", valueName: "size"),
        transform: reading("is no size; write it as 32MiB.") { text in
            ByteSize.read(text).flatMap { $0 > 0 ? $0 : nil }
        }
    )
    var size: Int64 = 32 << 20

    @Option(
        help: ArgumentHelp(
            "Also look whether pages of this origin may upload: https://app.example.org.",
            valueName: "origin"
        ),
        transform: reading("is no origin; write it as https://app.example.org.") {
            CrossOrigin.isOrigin($0) ? $0 : nil
        }
    )
    var origin: String?

    @Option(
        help: ArgumentHelp("Trust the authorities in this PEM file instead.", valueName: "file")
    )
    var cacert: String?

    @Flag(help: "Also look at this machine: nginx's files, the socket and the units. As root.")
    var local = false

    @Option(
        help: ArgumentHelp(
            "With --local: the command that prints nginx's files (default: nginx -T).",
            valueName: "command"
        )
    )
    var nginx: String?

    @Option(
        help: ArgumentHelp(
            "With --local: the daemon's admin socket (default: SPOOLGATE_ADMIN_LISTEN, "
                + "or admin.sock beside the one in nginx's files).",
            valueName: "path"
        )
    )
    var socket: String?

    @Flag(help: "Also be silent for 70 seconds, and see who minds.")
    var thorough = false

    @Flag(help: "One JSON object a line, for each check, and one for the sum.")
    var json = false

    func validate() throws {
        if !local, nginx != nil || socket != nil {
            throw ValidationError("--nginx and --socket go with --local.")
        }
        if let cacert, access(cacert, R_OK) != 0 {
            throw ValidationError("--cacert \(cacert) cannot be read.")
        }
    }

    func perform() throws(CommandFailure) {
        let stop = try Stop()
        let report = FindingReport("spoolgate probe \(url.text)", json: json)
        var machine: LocalCheck?
        if local {
            let check = LocalCheck(
                of: url,
                nginx: (nginx ?? "nginx -T").split(separator: " ").map(String.init),
                fields: HTTPFields(header)
            )
            for finding in check.findings { report.tell(finding) }
            machine = check
        }
        var question = ProbeQuestion(url)
        question.fields = HTTPFields(header)
        question.versions = http.versions
        question.size = size
        question.origin = origin
        question.certificateAuthority = cacert
        question.isThorough = thorough
        if local {
            let daemon = DaemonQuestion(try adminSocket(machine))
            question.contentPath = { daemon.contentPath(of: $0) }
        }
        question.lane = machine?.lane
        let probe = UploadProbe(question, isStopped: { stop.isAsked }) { finding in
            report.tell(machine?.placed(finding) ?? finding)
        }
        probe.run()
        if stop.isAsked {
            throw CommandFailure(code: .unavailable, sentence: "stopped before the end")
        }
        try report.end()
    }

    /// The daemon's admin socket: what the command line or the environment names, else the one beside nginx's.
    private func adminSocket(_ machine: LocalCheck?) throws(CommandFailure) -> String {
        if let socket { return socket }
        do throws(SettingsFault) {
            let settings = try Settings.load(nil, environment: Listener.processEnvironment)
            return settings.adminPath ?? machine?.adminSocket ?? settings.adminSocket
        } catch {
            throw CommandFailure(code: .configuration, sentence: error.description)
        }
    }
}

/// Whether somebody asked this process to end.
private final class Stop: Sendable {
    private let flag = Atomic<Bool>(false)

    /// Takes SIGINT and SIGTERM from now on.
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
            throw CommandFailure(code: .unavailable, sentence: "\(error)")
        }
    }

    var isAsked: Bool { flag.load(ordering: .relaxed) }
}
