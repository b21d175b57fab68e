// The nginx that runs on this machine, as /proc tells it: who its workers are, and whether it has the module.

import Glibc
import SpoolgatePosix
import SpoolgateTextFormats

/// Whom the kernel takes a process for.
struct Credentials: Sendable, Equatable, Hashable {
    /// Its user's number.
    var user: UInt32
    /// The numbers of all its groups.
    var groups: Set<UInt32>
    /// The number of its own group; nil: not known.
    var group: UInt32?

    /// Its own group, or the first of all if that is not known.
    var mainGroup: UInt32 { group ?? groups.min() ?? 0 }
}

extension Credentials {
    /// Reads /proc/PID/status; nil for what is none.
    init?(status: String) {
        var values: [Substring: [UInt32]] = [:]
        for line in status.split(separator: "\n") {
            guard let colon = line.firstIndex(of: ":") else { continue }
            let numbers = line[line.index(after: colon)...].split { " \t".contains($0) }
            values[line[..<colon]] = numbers.compactMap { UInt32($0) }
        }
        // Real, effective, saved, and that for files.
        guard let users = values["Uid"], let groups = values["Gid"], users.count == 4,
            groups.count == 4
        else { return nil }
        self.init(
            user: users[3],
            groups: Set([groups[3]] + (values["Groups"] ?? [])),
            group: groups[3]
        )
    }

    /// Whether these rights are there: the file's owner's, its group's, or everybody's.
    func has(_ rights: AccessRights, to facts: PathFacts) -> Bool {
        if user == 0 { return true }
        let shift: UInt32 =
            facts.owner == user ? 6 : groups.contains(facts.group) ? 3 : 0
        return (facts.permissions >> shift) & UInt32(rights.rawValue) == UInt32(rights.rawValue)
    }
}

/// What runs of nginx.
package struct NginxProcesses: Sendable {
    /// Its workers, each kind once.
    private(set) var workers: Set<Credentials> = []
    /// Whether the module for interim responses is loaded; nil: this process may not see.
    private(set) var hasModule: Bool?
    /// The smallest limit on the size of a worker's files, in bytes; nil: none, or this process may not see.
    private(set) var fileSizeLimit: Int64?
    /// How each that was started by root, or by this user, prints its files, each way once.
    private(set) var commands: [[String]] = []

    /// Why no files of nginx were looked at.
    static var noFiles: String {
        geteuid() == 0
            ? "no nginx runs on this machine" : "no nginx whose files this user may read (root may)"
    }

    /// The most that is read of one file.
    private static let limit = 4 << 20
    private static let master = "nginx: master process "

    /// Looks at every process that may be seen.
    ///
    /// - Parameter command: how nginx is called; only what was started with the same files counts. Nil: any.
    package init(of command: [String]? = nil) {
        let wanted = command.map { Self.files(of: $0[...]) }
        // Without /proc there is nothing to be seen.
        guard let names = try? Directory(path: "/proc").names() else { return }
        var masters: Set<String> = []
        var children: [(master: String, status: String, limit: Int64?)] = []
        for name in names where name.utf8.allSatisfy({ (0x30...0x39).contains($0) }) {
            // Processes end while one looks.
            guard
                let title = try? TextFile.read("/proc/\(name)/cmdline", limit: Self.limit),
                title.hasPrefix("nginx: "),
                let status = try? TextFile.read("/proc/\(name)/status", limit: Self.limit)
            else { continue }
            if title.hasPrefix("nginx: worker"), let master = Self.parent(status) {
                let limits = try? TextFile.read("/proc/\(name)/limits", limit: Self.limit)
                children.append((master, status, limits.flatMap(Self.fileSizeLimit)))
            }
            guard title.hasPrefix(Self.master) else { continue }
            let words = title.dropFirst(Self.master.count).split { " \0".contains($0) }
            guard wanted == nil || Self.files(of: words.map(String.init)[...]) == wanted else {
                continue
            }
            masters.insert(name)
            note(words.map(String.init), status)
            guard let maps = try? TextFile.read("/proc/\(name)/maps", limit: Self.limit) else {
                continue
            }
            hasModule = (hasModule ?? false) || maps.contains("ngx_http_interim_module.so")
        }
        let own = children.filter { masters.contains($0.master) }
        workers = Set(own.compactMap { Credentials(status: $0.status) })
        fileSizeLimit = own.compactMap(\.limit).min()
    }

    /// The limit on the size of files in /proc/PID/limits, in bytes; nil: none.
    static func fileSizeLimit(_ limits: String) -> Int64? {
        let name = "Max file size "
        return limits.split(separator: "\n").first { $0.hasPrefix(name) }
            .flatMap { $0.dropFirst(name.count).split(separator: " ").first }
            .flatMap { Int64(digits: $0) }
    }

    /// Notes how a master prints its files.
    ///
    /// Not of another user's process, which could name any program.
    private mutating func note(_ words: [String], _ status: String) {
        guard let program = words.first, let owner = Credentials(status: status)?.user,
            owner == 0 || owner == SystemUser.current.number
        else { return }
        let options = zip(["-p", "-c"], Self.files(of: words[...])).flatMap { option, value in
            value.map { [option, $0] } ?? []
        }
        let command = [program, "-T"] + options
        if !commands.contains(command) { commands.append(command) }
    }

    /// What they print, of those that print anything.
    package func dumps() -> [NginxDump] {
        commands.compactMap { command in
            // `try?`: one in a container, or with files that this user may not read, is left out.
            (try? SystemCommand.output(of: command).get()).map { NginxDump($0, by: command) }
        }
    }

    /// Which files a command line of nginx names: the values of -p and -c.
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
