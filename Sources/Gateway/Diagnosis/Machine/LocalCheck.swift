// The probe's checks of the local machine.
//
// The checks change nothing. Reading nginx's files requires root because `nginx -T` opens certificates and logs.

import SpoolgatePosix

/// The check of the local machine.
package struct LocalCheck {
    package private(set) var findings: [Finding] = []
    /// The settings that decide whether nginx writes content into the spool; nil if nginx's files were not read.
    package private(set) var lane: NginxLane?
    /// The default path of the admin socket, next to nginx's socket for uploads; nil if nginx's files name none.
    package private(set) var adminSocket: String?

    /// Runs the checks for the URL of creations.
    ///
    /// `nginx` is the command `nginx -T`.
    package init(of url: ProbeURL, nginx: [String]) {
        let processes = NginxProcesses(of: nginx)
        switch SystemCommand.output(of: nginx) {
        case .failure(let fault): findings.append(Self.unread(fault.reason))
        case .success(let text): look(at: NginxDump(text), url, processes)
        }
        findings += UnitsEvidence.findings(UnitsEvidence())
    }

    /// Returns a failure for an error in nginx's files, or a warning if the files could not be read.
    static func unread(_ reason: String) -> Finding {
        guard reason.contains("[emerg]"), !reason.contains("ermission denied") else {
            return .warning("nginx", reason, ["run the probe as root, on the machine of nginx"])
        }
        let fix = "fix that line  (until then nginx keeps its previous configuration)"
        return .failure("nginx", reason, [fix])
    }

    private mutating func look(at dump: NginxDump, _ url: ProbeURL, _ processes: NginxProcesses) {
        guard let place = dump.gateway(of: url.path, host: url.host, port: url.port) else {
            let others = Set(dump.gateways.map(\.path)).sorted()
            let fix =
                others.isEmpty
                ? Fix.snippet + "  (in the server block of \(url.host))"
                : "probe a URL below \(others.joined(separator: ", "))  (these locations accept uploads)"
            let text = "no nginx location for \(url.path) has a fastcgi_pass"
            findings.append(.failure("nginx", text, [fix]))
            return
        }
        let faults = place.faults
        findings += faults
        if let login = NginxLogin(at: place).finding(workers: processes.workers) {
            findings.append(login)
        }
        if faults.isEmpty { findings.append(place.found) }
        lane = place.lane
        if let socket = place.socket {
            adminSocket = "\(PathAccess.parent(of: socket))/admin.sock"
            findings.append(SocketEvidence(path: socket, workers: processes.workers).finding)
        }
    }

    /// Returns a finding of the probe without the advice to use `--local`.
    package func following(_ finding: Finding) -> Finding {
        var finding = finding
        finding.fixes.removeAll { $0 == Fix.local }
        return finding
    }
}
