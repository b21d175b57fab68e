// The directory of states, and the state of one transfer in use.
//
// A state is one file with mode 0600, replaced as a whole and locked by its process; the lock ends with the process,
// even by `kill -9`. The invariant: a file is complete and locked before it gets the state's name.

import Glibc
import SpoolgatePosix
import SpoolgateTextFormats

/// The directory `spoolgate-upload` in `XDG_STATE_HOME`, in systemd's `STATE_DIRECTORY`, or in `~/.local/state`.
struct StateDirectory {
    private let directory: Directory

    init(environment: (String) -> String? = Listener.processEnvironment) throws(Ending) {
        // If there are several directories, systemd separates them with colons.
        let ofService = environment("STATE_DIRECTORY")?.split(separator: ":").first.map(String.init)
        let stated = [environment("XDG_STATE_HOME"), ofService].compactMap { $0 }
            .first { $0.isAbsolutePath }
        guard let home = stated ?? HomeDirectory.path(environment).map({ $0 + "/.local/state" })
        else {
            throw Ending(
                .usage,
                "no directory for the state of transfers: this user has no home directory; set "
                    + "XDG_STATE_HOME"
            )
        }
        let path = home + "/spoolgate-upload"
        do throws(SystemError) {
            let disk = Disk()
            var part = ""
            for name in path.split(separator: "/") {
                part += "/\(name)"
                try disk.makeDirectory(path: part)
            }
            directory = try Directory(path: path)
            if try directory.status().permissions & 0o077 != 0 { try disk.makePrivate(directory) }
        } catch {
            throw Ending(error, "set XDG_STATE_HOME to use another directory")
        }
    }

    /// Returns all states, oldest first, and whether a process uses each.
    func all() throws(Ending) -> [(state: TransferState, isInUse: Bool)] {
        do throws(SystemError) {
            var states: [(TransferState, Bool)] = []
            for name in try directory.names()
            where !name.hasSuffix(StateFile.unfinished) && !name.hasSuffix(JournalCommand.ending) {
                guard let file = try directory.open(name) else { continue }
                let path = directory.path(of: name)
                let bytes = try file.bytes(at: 0, count: StateFile.limit, subject: path)
                guard let state = TransferState(String(decoding: bytes, as: UTF8.self)) else {
                    continue
                }
                states.append((state, try file.isLockedElsewhere(subject: path)))
            }
            return states.sorted { $0.0.begun < $1.0.begun }
        } catch {
            throw Ending(error, "check the directory")
        }
    }

    /// Returns all journals, oldest first, and whether a process uses each.
    func journals() throws(Ending) -> [(content: JournalContent, isInUse: Bool)] {
        do throws(SystemError) {
            var journals: [(JournalContent, Bool)] = []
            for name in try directory.names() where name.hasSuffix(JournalCommand.ending) {
                guard let file = try directory.open(name) else { continue }
                let path = directory.path(of: name)
                let size = Int(try file.status(subject: path).size)
                let content = JournalContent(try file.bytes(at: 0, count: size, subject: path))
                guard content.command != nil else { continue }
                journals.append((content, try file.isLockedElsewhere(subject: path)))
            }
            return journals.sorted { $0.0.begun < $1.0.begun }
        } catch {
            throw Ending(error, "check the directory")
        }
    }

    /// Locks the journal of a command, creating it if it is missing.
    ///
    /// - Returns: the journal, or nil if another process has locked it.
    func take(_ command: JournalCommand) throws(Ending) -> UploadJournal? {
        do throws(SystemError) {
            return try UploadJournal.take(command, in: directory)
        } catch {
            throw Ending(error, "check the file and its directory")
        }
    }

    /// Locks the state of a transfer, or returns nil if another process has locked the state.
    ///
    /// Uses `fresh` if the state is missing or unreadable.
    func take(_ fresh: TransferState) throws(Ending) -> StateFile? {
        do throws(SystemError) {
            return try StateFile.take(fresh, in: directory)
        } catch {
            throw Ending(error, "check the file and its directory")
        }
    }
}

/// The locked state of one transfer; used by one thread at a time.
final class StateFile {
    /// The suffix of a new state file until it is renamed.
    static let unfinished = ".new"
    /// The maximum number of bytes read from a state file.
    static let limit = 1 << 16

    var state: TransferState
    /// Whether the state is from an earlier run.
    let wasThere: Bool
    private let name: String
    private let directory: Directory
    private let disk = Disk()
    private var file: Descriptor

    private init(
        _ state: TransferState,
        wasThere: Bool,
        name: String,
        in directory: Directory,
        _ file: consuming Descriptor
    ) {
        self.state = state
        self.wasThere = wasThere
        self.name = name
        self.directory = directory
        self.file = file
    }

    fileprivate static func take(
        _ fresh: TransferState,
        in directory: Directory
    ) throws(SystemError) -> StateFile? {
        let name = fresh.name
        let path = directory.path(of: name)
        while true {
            guard let file = try open(name, in: directory) else { continue }
            guard try file.tryLock(subject: path) else { return nil }
            // Another process may have replaced the file before it was locked.
            guard try file.status(subject: path).names > 0 else { continue }
            let bytes = try file.bytes(at: 0, count: limit, subject: path)
            let kept = TransferState(String(decoding: bytes, as: UTF8.self))
            return StateFile(
                kept ?? fresh,
                wasThere: kept != nil,
                name: name,
                in: directory,
                file
            )
        }
    }

    /// Opens or creates a state file; returns nil if another process created the file at the same time.
    private static func open(
        _ name: String,
        in directory: Directory
    ) throws(SystemError) -> Descriptor? {
        if let file = try directory.open(name, forWriting: true) { return file }
        do throws(SystemError) { return try Disk().create(name, in: directory) } catch {
            guard error.errno == EEXIST else { throw error }
            return nil
        }
    }

    /// Replaces the state file, durably if `isDurable` is true.
    ///
    /// If an error is thrown, the old file remains, or the new one is in place but may not be durable.
    func save(isDurable: Bool = true) throws(SystemError) {
        let temporary = name + Self.unfinished
        let path = directory.path(of: temporary)
        try disk.unlink(temporary, in: directory)
        let next = try disk.create(temporary, in: directory)
        var position: Int64 = 0
        try disk.write(Array(state.text.utf8).span.bytes, to: next, at: &position, subject: path)
        _ = try next.tryLock(subject: path)
        if isDurable { try disk.sync(next, subject: path) }
        try disk.rename(temporary, in: directory, to: name, in: directory)
        if isDurable { try disk.syncDirectory(directory) }
        file = next
    }

    func remove() {
        // If this fails, the next run finds the state and asks the server.
        _ = try? disk.unlink(name, in: directory)
    }
}
