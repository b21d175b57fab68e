// What a command for several files keeps until its next run: one file that is only added to, locked by the process.
//
// Several uploads wait for their lines to be durable together: one of them syncs for all (group commit). The invariants:
// what `addDurably` returned from survives a power cut; a broken end of the file is no line and breaks no later one.

import Glibc
import SpoolgatePosix
import SpoolgateTextFormats

/// The journal of one command.
///
/// Any thread.
final class UploadJournal: Sendable {
    private struct State {
        var content: JournalContent
        /// Lines written by this process, and how many of them are durable.
        var written = 0
        var durable = 0
        var isSyncing = false
    }

    /// Whether a run before this one had left it.
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

    /// The journal of a command, locked; a new one if there is none.
    ///
    /// - Returns: nil if another process has it.
    /// - Throws: `SystemError` if it cannot be made or read.
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
            // Between opening and locking it may have been replaced or removed.
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
            // A line that a crash broke off ends here.
            if let last = bytes.last, last != UInt8(ascii: "\n") { try file.add(line: "") }
            if content.command == nil {
                try journal.add(.command(command))
                try journal.add(.begun(.now))
                try Disk().syncDirectory(directory)
            }
            return journal
        }
    }

    /// What it says in all.
    var content: JournalContent { state.updateQuietly(\.content) }

    /// What is known of one file.
    func entry(of key: JournalKey) -> JournalContent.Entry {
        state.updateQuietly { $0.content.entries[key] } ?? JournalContent.Entry()
    }

    /// Adds a line; it survives the process, not a power cut.
    ///
    /// - Throws: `SystemError` if it could not be written whole: then it is no line.
    func add(_ line: JournalLine) throws(SystemError) {
        try file.add(line: line.text)
        state.updateQuietly { state in
            state.content.apply(line)
            state.written += 1
        }
    }

    /// Adds a line; it survives a power cut when this returns.
    ///
    /// - Throws: `SystemError` if it could not be written, or is not durable.
    func addDurably(_ line: JournalLine) throws(SystemError) {
        try add(line)
        try sync()
    }

    /// Waits until every line that this thread added survives a power cut.
    func sync() throws(SystemError) {
        let own = state.updateQuietly(\.written)
        while true {
            // nil: another thread has synced it; else this thread syncs for all that wait.
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

    /// Ends the continuation: everything that this run was for is done.
    ///
    /// Removes the journal; or keeps what another run needs, of files that this run did not name.
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

    /// Removes it.
    func remove() throws(SystemError) { try Disk().unlink(name, in: directory) }
}
