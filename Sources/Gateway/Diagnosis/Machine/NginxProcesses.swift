// The nginx processes on this machine, from /proc.

import Glibc
import SpoolgatePosix
import SpoolgateTextFormats

/// The user and groups with which the kernel checks a process's permissions.
struct Credentials: Sendable, Equatable, Hashable {
    var user: UInt32
    var groups: Set<UInt32>
    /// The ID of the primary group.
    var group: UInt32 = 0
}

extension Credentials {
    /// Parses the content of /proc/PID/status.
    init?(status: String) {
        var values: [Substring: [UInt32]] = [:]
        for line in status.split(separator: "\n") {
            guard let colon = line.firstIndex(of: ":") else { continue }
            let numbers = line[line.index(after: colon)...].split { " \t".contains($0) }
            values[line[..<colon]] = numbers.compactMap { UInt32($0) }
        }
        // Each line lists the real, effective, saved and file system IDs.
        guard let users = values["Uid"], let groups = values["Gid"], users.count == 4,
            groups.count == 4
        else { return nil }
        self.init(
            user: users[3],
            groups: Set([groups[3]] + (values["Groups"] ?? [])),
            group: groups[3]
        )
    }

    /// Returns whether owner, group and mode give the process all these rights.
    func has(_ rights: AccessRights, to facts: PathFacts) -> Bool {
        if user == 0 { return true }
        let shift: UInt32 =
            facts.owner == user ? 6 : groups.contains(facts.group) ? 3 : 0
        return (facts.permissions >> shift) & UInt32(rights.rawValue) == UInt32(rights.rawValue)
    }
}

/// Facts about the nginx processes that run on this machine.
package struct NginxProcesses: Sendable {
    private(set) var workers: Set<Credentials> = []
    /// Whether an nginx has loaded `ngx_http_interim_module`; nil if this process's user may inspect no nginx.
    private(set) var hasModule: Bool?
    /// The master processes that root or this process's user started, with the commands that print their
    /// configurations.
    private var masters: [(process: String, command: [String])] = []
    /// The configurations of `masters` that could be read, and a failure for each that nginx refuses.
    private(set) var dumps: [NginxDump] = []
    private(set) var faults: [Finding] = []

    static var noFiles: String {
        geteuid() == 0
            ? "no nginx runs on this machine" : "no nginx whose files this user may read (root may)"
    }

    private static let limit = 4 << 20
    private static let master = "nginx: master process "

    /// Inspects all visible processes.
    ///
    /// - Parameter command: an nginx command. Only processes with the same `-p` and `-c` options are inspected; if nil,
    ///   all are.
    package init(of command: [String]? = nil) {
        let wanted = command.map { Self.files(of: $0[...]) }
        guard let names = try? Directory(path: "/proc").names() else { return }
        var found: Set<String> = []
        var children: [(master: String, status: String)] = []
        for name in names where name.utf8.allSatisfy({ (0x30...0x39).contains($0) }) {
            // A process may end during its inspection.
            guard
                let title = Self.title(of: name), title.hasPrefix("nginx: "),
                let status = try? TextFile.read("/proc/\(name)/status", limit: Self.limit)
            else { continue }
            if title.hasPrefix("nginx: worker"), let master = Self.parent(status) {
                children.append((master, status))
            }
            guard title.hasPrefix(Self.master) else { continue }
            let words = title.dropFirst(Self.master.count).split { " \0".contains($0) }
            guard wanted == nil || Self.files(of: words.map(String.init)[...]) == wanted else {
                continue
            }
            found.insert(name)
            if Self.isOfThisRoot(name) { note(words.map(String.init), status, of: name) }
            guard let maps = try? TextFile.read("/proc/\(name)/maps", limit: Self.limit) else {
                continue
            }
            hasModule = (hasModule ?? false) || maps.contains("ngx_http_interim_module.so")
        }
        let own = children.filter { found.contains($0.master) }
        workers = Set(own.compactMap { Credentials(status: $0.status) })
    }

    /// Adds a master process, with the command that prints its configuration, to `masters`.
    ///
    /// Ignores users other than root and this process's user, because other users could name any program to run. The
    /// title of a process is what its user chose, even if it runs as root, so the kernel names the program.
    private mutating func note(_ words: [String], _ status: String, of process: String) {
        guard let owner = Credentials(status: status),
            owner.user == 0 || owner.user == SystemUser.current.number,
            let program = Self.program(of: process)
        else { return }
        let options = zip(["-p", "-c"], Self.files(of: words[...])).flatMap { option, value in
            value.map { [option, $0] } ?? []
        }
        let command = [program, "-T"] + options
        if !masters.contains(where: { $0.command == command }) {
            masters.append((process, command))
        }
    }

    /// Runs the commands of `masters`; call it before giving up root's rights.
    package mutating func readFiles() {
        for (process, command) in masters {
            switch SystemCommand.output(of: command) {
            case .success(let text): dumps.append(NginxDump(text))
            case .failure(let fault):
                let finding = LocalCheck.unread(fault.reason)
                // A user who may not read nginx's files learns nothing about them. A process that ended may have taken
                // its files with it.
                if finding.level == .failure,
                    Self.title(of: process)?.hasPrefix(Self.master) == true
                {
                    faults.append(finding)
                }
            }
        }
    }

    /// Returns nil if the process has ended.
    private static func title(of process: String) -> String? {
        try? TextFile.read("/proc/\(process)/cmdline", limit: limit)
    }

    /// Returns the path of an nginx, also of one whose file was replaced by an upgrade; nil for every other program.
    private static func program(of process: String) -> String? {
        var target = [CChar](repeating: 0, count: Int(PATH_MAX))
        let count = readlink("/proc/\(process)/exe", &target, target.count)
        guard count > 0 else { return nil }
        let path = String(
            decoding: target.prefix(count).map(UInt8.init(bitPattern:)),
            as: UTF8.self
        )
        let deleted = " (deleted)"
        let program = path.hasSuffix(deleted) ? String(path.dropLast(deleted.count)) : path
        return program.split(separator: "/").last?.hasPrefix("nginx") == true ? program : nil
    }

    /// Returns whether a process sees the same root directory as this process, so that its files are not those of a
    /// container.
    private static func isOfThisRoot(_ process: String) -> Bool {
        // `try?`: a process whose root this user may not inspect counts as one of this root.
        guard let own = try? Directory(path: "/").status(),
            let other = try? Directory(path: "/proc/\(process)/root").status()
        else { return true }
        return (own.file, own.fileSystem) == (other.file, other.fileSystem)
    }

    /// Returns the values of -p and -c in a command line; nil for each that is missing.
    static func files(of words: ArraySlice<String>) -> [String?] {
        ["-p", "-c"].map { option in
            words.firstIndex(of: option).flatMap { index in
                words.index(after: index) < words.endIndex ? words[words.index(after: index)] : nil
            }
        }
    }

    private static func parent(_ status: String) -> String? {
        status.split(separator: "\n").first { $0.hasPrefix("PPid:") }
            .flatMap { $0.split { " \t".contains($0) }.last }.map(String.init)
    }
}
