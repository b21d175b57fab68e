// `spoolgate check`: reads the settings like `serve`, checks every path in them as the daemon's user, and prints
// settings that differ from their defaults; with --live, also checks the running system.

import ArgumentParser
import SpoolgateDiagnosis
import SpoolgatePosix
import SpoolgateSettings

struct Check: SpoolgateCommand {
    static let configuration = CommandConfiguration(
        abstract: "Check the settings, and print those that differ from the defaults.",
        discussion: """
            Changes nothing. The exit status is 0 if a daemon could serve with these settings, otherwise \
            78; with --live 0 if all is well, 1 if there are warnings, 69 if there are failures.
            """
    )

    @OptionGroup var options: SettingsOptions

    @OptionGroup var address: ListenOption

    @Option(
        help: .value(
            "name",
            "Check as this user; requires root (default if root checks the system's settings: "
                + "\(SettingsOptions.serviceUser))."
        )
    )
    var user: String?

    @Flag(name: .shortAndLong, help: "Print errors only.")
    var quiet = false

    @Flag(
        help: "Also check the running system: socket, nginx, spool, upstreams, authorizers, units."
    )
    var live = false

    @Flag(help: "With --live: print one JSON object per check, then the totals.")
    var json = false

    func validate() throws {
        if json, !live { throw ValidationError("--json requires --live.") }
        if quiet, live { throw ValidationError("--quiet and --live cannot be combined.") }
    }

    func perform() throws(CommandFailure) {
        // Read before the switch to a user who may lack access to nginx or systemd.
        var nginx = live ? NginxProcesses() : nil
        nginx?.readFiles()
        let units = live ? UnitsEvidence() : nil
        // Another user may be unable to check whether the file exists.
        let file = options.file
        let isSystems = SettingsOptions.isSystems(file)
        var judge = try becomeJudge(ofSystems: isSystems)
        if user == nil, isSystems { try requireJudge(judge) }
        if let file { try requireReadable(file, by: judge) }
        var settings = try options.settings(from: file)
        address.apply(to: &settings)
        if judge.isRoot, user == nil {
            // As `serve` does.
            try SpoolOwner.become(ofSpool: settings.spoolDirectory)
            judge = .current
        }
        let source = settings.source(file)
        // The shipped systemd units create the socket, or the directory for it.
        let isUnits = isSystems && settings.listen.text == Settings().listen.text
        var faults = SettingsFaults(
            settings,
            as: judge,
            bindsItself: !isUnits,
            makesDirectories: file == nil && settings.variables.isEmpty
        ).sentences
        if let lack = settings.lack { faults.insert("\(source): \(lack)", at: 0) }
        if let nginx {
            let report = FindingReport("spoolgate check \(source)", json: json)
            for finding in Self.findings(faults, settings) { report.add(finding) }
            let daemon = DaemonRequest(settings.adminSocket)
            let check = LiveCheck(
                settings,
                as: judge,
                nginx: nginx,
                units: units,
                response: daemon.status(),
                paths: daemon.lastPaths()
            )
            for finding in check.findings { report.add(finding) }
            return try report.end()
        }
        for fault in faults { printError(fault) }
        guard faults.isEmpty else {
            let sentence = "\(source): the settings are not usable"
            throw CommandFailure(.configuration, sentence, isReported: quiet)
        }
        if quiet { return }
        for warning in settings.ignored.map(\.description) + settings.openDoors {
            printError("warning: \(warning)")
        }
        print("\(source): ok")
        if let variables = settings.fromEnvironment { print("from the environment: \(variables)") }
        printDifferences(settings)
    }

    private static func findings(_ faults: [String], _ settings: Settings) -> [Finding] {
        var findings = faults.map { fault in
            // The text after a sentence's last semicolon is the fix.
            let parts = fault.split(separator: "; ").map(String.init)
            let text = parts.count > 1 ? parts.dropLast().joined(separator: "; ") : fault
            return Finding(.failure, "settings", text, fixes: parts.dropFirst().suffix(1))
        }
        if faults.isEmpty { findings.append(.ok("settings", "valid and usable")) }
        if let variables = settings.fromEnvironment {
            findings.append(.ok("settings", "from the environment: \(variables)"))
        }
        findings += settings.ignored.map { Finding(.warning, "settings", $0.description) }
        let doors = settings.openDoors
        findings += doors.map { door in
            let parts = door.split(separator: ". ", maxSplits: 1).map(String.init)
            return Finding(.warning, "login", parts[0], fixes: Array(parts.dropFirst()))
        }
        if doors.isEmpty { findings.append(.ok("login", "the settings decide who may upload")) }
        return findings
    }

    /// Switches this process to the user as whom to check.
    private func becomeJudge(ofSystems isSystems: Bool) throws(CommandFailure) -> SystemUser {
        let current = SystemUser.current
        var judge = current
        if let user {
            guard let named = SystemUser(named: user) else {
                let sentence = "--user \(user): unknown user; see getent passwd"
                throw CommandFailure(.unknownUser, sentence)
            }
            judge = named
        } else if current.isRoot, isSystems {
            judge = SystemUser(named: SettingsOptions.serviceUser) ?? current
        }
        guard judge.number != current.number else { return current }
        do throws(SystemError) {
            try judge.become()
        } catch {
            let sentence = "--user \(judge.name): \(error); only root can check as another user"
            throw CommandFailure(.noPermission, sentence)
        }
        return judge
    }

    /// Throws unless root or the service's user checks, because results for other users do not apply to the service.
    private func requireJudge(_ judge: SystemUser) throws(CommandFailure) {
        guard !judge.isRoot, let service = SystemUser(named: SettingsOptions.serviceUser),
            judge.number != service.number
        else { return }
        throw CommandFailure(
            .noPermission,
            "user \(judge.name) cannot check as the service's user, \(service.name); use "
                + "sudo spoolgate check, or --user \(judge.name)"
        )
    }

    private func requireReadable(_ file: String, by user: SystemUser) throws(CommandFailure) {
        do throws(PathObstacle) {
            _ = try PathAccess.require(.read, to: file)
        } catch {
            // Other errors are reported when the settings are read.
            guard case .denied = error else { return }
            let fault = PathFault(user: user, use: .file, path: file)
            let sentence = "cannot read the settings: \(fault.sentence(error))"
            throw CommandFailure(.configuration, sentence)
        }
    }

    private func printDifferences(_ settings: Settings) {
        // Each route is compared with default settings.
        var plain = Settings()
        for name in settings.routes.keys { plain.routes[name] = RouteSettings() }
        let defaults = Dictionary(uniqueKeysWithValues: plain.table.map { ($0.key, $0.value) })
        for (key, value) in settings.table where defaults[key] != value {
            print("  \(key): \(value)")
        }
    }
}
