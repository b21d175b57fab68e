// The journal of a command for several files: one append-only file that the process locks.
//
// Concurrent uploads share syncs: one thread syncs for all waiting threads (group commit). The invariants: a line is
// durable when `addDurably` returns; an incomplete line at the end is ignored and damages no later line.

import Glibc
import SpoolgatePosix
import SpoolgateTextFormats

/// May be used from any thread.
final class UploadJournal: Sendable {
    private struct State {
        var content: JournalContent
        /// The number of lines written by this process; the first `durable` lines are durable.
        var written = 0
        var durable = 0
        var isSyncing = false
    }

    /// Whether the journal is from an earlier run.
    let wasThere: Bool
    private let name: String
    private let directory: Directory
    private let file: AppendedFile
    private let state: Monitor<State>

    private init(
        _ content: JournalContent,
        wasThere: Bool,
        name: String,
        in directory: Directory,
        _ file: AppendedFile
    ) {
        self.wasThere = wasThere
        self.name = name
        self.directory = directory
        self.file = file
        state = Monitor(State(content: content))
    }

    /// Locks the journal of a command, creating it if it is missing.
    ///
    /// - Returns: the journal, or nil if another process has locked it.
    /// - Throws: `SystemError` if the journal cannot be created or read.
    static func take(
        _ command: JournalCommand,
        in directory: Directory
    ) throws(SystemError) -> UploadJournal? {
        let name = command.name
        let path = directory.path(of: name)
        while true {
            let file = try AppendedFile(path: name, in: directory, mode: 0o600)
            guard try file.descriptor.tryLock(subject: path) else { return nil }
            let status = try file.descriptor.status(subject: path)
            // Another process may have replaced the journal before this lock was acquired.
            guard status.names > 0 else { continue }
            let bytes = try file.descriptor.bytes(at: 0, count: Int(status.size), subject: path)
            let content = JournalContent(bytes)
            let journal = UploadJournal(
                content,
                wasThere: content.command != nil,
                name: name,
                in: directory,
                file
            )
            // Ends a line that a crash left incomplete.
            if let last = bytes.last, last != UInt8(ascii: "\n") { try file.add(line: "") }
            if content.command == nil {
                try journal.add(.command(command))
                try journal.add(.begun(.now))
                try Disk().syncDirectory(directory)
            }
            return journal
        }
    }

    var content: JournalContent { state.updateQuietly(\.content) }

    func entry(of key: JournalKey) -> JournalContent.Entry {
        state.updateQuietly { $0.content.entries[key] } ?? JournalContent.Entry()
    }

    /// Adds a line that survives a crash, but perhaps not a power failure.
    ///
    /// If this throws, the next run ignores the incomplete line.
    func add(_ line: JournalLine) throws(SystemError) {
        try file.add(line: line.text)
        state.updateQuietly { state in
            state.content.apply(line)
            state.written += 1
        }
    }

    func addDurably(_ line: JournalLine) throws(SystemError) {
        try add(line)
        try sync()
    }

    /// Waits until every line that this thread added is durable.
    func sync() throws(SystemError) {
        let own = state.updateQuietly(\.written)
        while true {
            // The inner nil means that another thread has synced. Otherwise this thread syncs for all waiting threads.
            let target = state.wait(until: .never, isQuiet: true) { state -> Int?? in
                if state.durable >= own { return .some(nil) }
                guard !state.isSyncing else { return nil }
                state.isSyncing = true
                return state.written
            }
            guard let target, let count = target else { return }
            do throws(SystemError) {
                try Disk().sync(file.descriptor, subject: file.path)
            } catch {
                state.update { $0.isSyncing = false }
                throw error
            }
            state.update { state in
                state.isSyncing = false
                state.durable = max(state.durable, count)
            }
        }
    }

    /// Removes the journal once all files of the command were accepted.
    ///
    /// Entries of other files are kept if another run needs them.
    func finish() throws(SystemError) {
        let content = content
        guard content.entries.values.contains(where: \.isOpen) else { return try remove() }
        let disk = Disk()
        let temporary = name + StateFile.unfinished
        let path = directory.path(of: temporary)
        try disk.unlink(temporary, in: directory)
        let next = try disk.create(temporary, in: directory)
        let text = content.open.map { $0.text + "\n" }.joined()
        var position: Int64 = 0
        try disk.write(Array(text.utf8).span.bytes, to: next, at: &position, subject: path)
        try disk.sync(next, subject: path)
        try disk.rename(temporary, in: directory, to: name, in: directory)
        try disk.syncDirectory(directory)
    }

    func remove() throws(SystemError) { try Disk().unlink(name, in: directory) }
}
