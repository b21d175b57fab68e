// The files of one upload together: its record and its content.
//
// Used by Upload, recovery and removal alike, so that all remove and make legal in the one order that
// spoolgate-spool(5) proves safe. Invariant: every step here leaves a combination of files that the page has a
// row for.

import HTTPTypes
import SpoolgatePosix
import SpoolgateUploadProtocol

/// The files of one upload, open and locked.
///
/// Used by one thread; the kernel's locks go with the last reference, or with `close()`.
struct UploadFiles {
    /// The record.
    let record: RecordFile
    /// The content.
    let content: ContentFile
    private let spool: Spool
    let name: FileName

    private var id: UploadID { record.id }
    private var state: RecordState { record.state }

    /// Takes a record that the caller has opened and locked, nil for an upload without one; `state` and
    /// `creationEnd` where it was just made.
    init(
        of id: UploadID,
        _ name: FileName,
        in spool: Spool,
        record: OpenFile?,
        state: RecordState = RecordState(),
        creationEnd: Int64 = 0
    ) {
        self.spool = spool
        self.name = name
        self.record = RecordFile(
            of: id,
            name,
            in: spool,
            record,
            state: state,
            creationEnd: creationEnd
        )
        content = ContentFile(of: self.record, name, in: spool)
    }

    /// Closes all, and with that gives up the kernel's locks; content in memory is gone.
    func close() {
        content.close()
        record.close()
    }

    /// Reads the record and opens the content.
    ///
    /// - Parameter status: what the file system knows of the record since it was locked.
    /// - Returns: what the upload was created with, and what of the record matters to what becomes of it;
    ///   an unreadable record as it is.
    /// - Throws: `.busy` where content may still come from somebody else.
    func read(
        _ status: FileStatus
    ) throws(SpoolError) -> Result<LoadedRecord, UnreadableRecord> {
        let status = try spool.onDisk { () throws(SystemError) in
            try settled(record.open(), status, size: 1)
        }
        let read = try record.read(status)
        var found = try content.open()
        if case .success(let loaded) = read {
            record.believe(loaded, status)
            if let data = content.data, let status = found, let durable = state.durable {
                found = try spool.onDisk { () throws(SystemError) in
                    try settled(data, status, size: durable)
                }
            }
            content.believe(found)
        }
        return read
    }

    /// Waits until a file of a shared spool has the size that it must have, for at most five seconds.
    ///
    /// The kernel's client of CephFS leaves sizes to the metadata server. If a host dies, the server releases its
    /// locks before it has found out how long its files are: a file that the host had synced looks too short.
    ///
    /// - Returns: the status it has at the end.
    private func settled(
        _ file: OpenFile,
        _ status: FileStatus,
        size: Int64
    ) throws(SystemError) -> FileStatus {
        guard spool.isShared else { return status }
        var status = status
        let deadline = Deadline.after(.seconds(5))
        while status.size < size, !deadline.hasPassed {
            Thread.pause(.milliseconds(50))
            status = try file.status()
        }
        return status
    }

    // MARK: Names

    /// Whether the names of record and content may not be durable.
    var areNamesInDoubt: Bool { record.state.durable ?? 0 == 0 || content.mayBeShared }

    /// Makes the names of record and content durable.
    func syncNames() throws(SpoolError) {
        try spool.onDisk { () throws(SystemError) in
            try spool.disk.syncDirectory(spool.layout.directory(of: name))
        }
    }

    // MARK: Removing

    /// Moves the record to `corrupt`; the content stays where it is.
    func setAside() throws(SpoolError) {
        try spool.setAside(name)
        spool.room.giveBackUpload(of: nil, isFinished: true)
    }

    /// Removes the upload: first the record, so that nothing half is ever found, then the content.
    ///
    /// - Parameters:
    ///   - client: whose it is; nil: nobody knows.
    ///   - durably: whether no power cut brings it back once this returns.
    /// - Throws: `.disk` where a part of it is there still or may come back.
    func remove(of client: ClientName?, durably: Bool = false) throws(SpoolError) {
        try spool.onDisk { () throws(SystemError) in
            try record.remove(of: client)
            try spool.removeContent(of: [self], durably: durably)
        }
    }

    // MARK: Making legal

    /// Makes the files legal again that a crash or a power cut has left.
    ///
    /// - Parameter loaded: what `read(_:)` gave.
    /// - Returns: what was done.
    /// - Throws: `.corrupt` after setting an upload aside.
    func repair(_ loaded: LoadedRecord) throws(SpoolError) -> Repair {
        let isForeign = state.writer != spool.writer
        let fault = isForeign ? try believeOlderState() : nil
        let repair = Repair(
            state: state,
            dataSize: content.data == nil ? nil : content.size,
            responseFault: fault,
            isForeign: isForeign,
            isSlotDamaged: loaded.isSlotDamaged,
            isConcatenation: loaded.creation.kind.isFinal
        )
        // A file system may keep the state and lose the name that was made before it (btrfs). Before the state is
        // written anew: after that nothing shows that the name may be missing.
        if isForeign, repair.keepsUpload { try record.restoreName() }
        try apply(repair, loaded.creation)
        // Who cut content back, or found that it need not be, answers for what comes after.
        if isForeign, state.writer != spool.writer, [.incoming, .deferred].contains(state.queue),
            repair != .forget
        {
            // Its last writer may live, and must not take for its own what comes now.
            try record.write(durably: spool.isShared) { _ in }
        }
        return repair
    }

    /// Goes back to the state before, where a power cut has kept the newest one and not what it points to.
    ///
    /// - Returns: why a part of the record cannot be read that still counts; nil: it can.
    private func believeOlderState() throws(SpoolError) -> UnreadableRecord? {
        guard let fault = try partFault() else { return nil }
        guard try record.believeOlder() else { return fault }
        content.forgetWithoutFile()
        return try partFault()
    }

    private func partFault() throws(SpoolError) -> UnreadableRecord? {
        if state.queue == .delivered {
            guard case .failure(let fault) = try record.response() else { return nil }
            guard fault.kind != .newer else { throw .newer(id, reason: fault.reason) }
            return fault
        }
        guard state.completion != nil, try record.completion() == nil else { return nil }
        return UnreadableRecord(reason: "the stored completing request is damaged")
    }

    private func apply(_ repair: Repair, _ creation: UploadCreation) throws(SpoolError) {
        switch repair {
        case .keep: return
        case .cutBack(let size):
            try content.truncate(to: size)
            if state.verified != nil { try record.write { $0.verified = nil } }
        case .receiveAgain(let size):
            try content.truncate(to: size)
            try record.write { $0.receiveAgain() }
        case .retry:
            // Its client heard of no failure: it is the queue's to repeat.
            try record.write { state in
                state.go(to: .deferred, Repair.interrupted)
                state.next = spool.clock.now
            }
        case .hold:
            // What nobody was told of was on its way into its file.
            if content.size != state.length { try content.truncate(to: 0) }
            try record.write { state in
                state.go(to: .hold, Repair.outcomeUnknown)
                state.cause = .indeterminate
            }
        case .removeContent:
            // Who wrote that may have died before it was durable.
            if state.durable != nil, record.isDirty { try record.sync() }
            _ = try spool.onDisk { () throws(SystemError) in try content.remove() }
            content.size = state.length ?? content.size
        case .forget:
            try remove(of: creation.client)
        case .setAside(let reason):
            try setAside()
            throw .corrupt(id, reason: reason)
        }
    }

    // MARK: Looking

    /// Whether nothing has changed since the upload was looked at; the creation never does.
    func isUnchanged(since earlier: UploadSummary) throws(SystemError) -> Bool {
        let file = try record.open()
        let status = try file.status()
        guard try content.tryOpen() else { return false }
        let found = try content.data?.status()
        let read = try LoadedRecord.read(file, of: id, knowing: nil)
        if let loaded = try? read.get() { record.look(at: loaded.state) }
        let now = UploadSummary(
            id: id,
            try? read.get(),
            status: status,
            data: found,
            isInUse: earlier.isInUse
        )
        return (now.queue, now.offset, now.lastActivity, now.sequence)
            == (earlier.queue, earlier.offset, earlier.lastActivity, earlier.sequence)
    }

    /// Has the last activity be now.
    func touch() throws(SystemError) {
        for file in [try spool.layout.openData(name), try record.open()].compactMap({ $0 }) {
            try spool.disk.touch(file.descriptor, subject: file.subject)
        }
    }
}

extension Spool {
    /// Removes the content of uploads whose records are gone.
    ///
    /// - Parameters:
    ///   - removed: the uploads, locked.
    ///   - durably: whether no power cut brings one back once this returns.
    /// - Throws: `SystemError` where one is there still or may come back.
    func removeContent(of removed: [UploadFiles], durably: Bool) throws(SystemError) {
        for files in removed { try files.content.remove() }
        guard durably else { return }
        // One directory keeps a first part of its changes, in order: no content goes before its record.
        for number in Set(removed.map(\.name.number)).sorted() {
            try disk.syncDirectory(layout.uploads[number])
        }
    }
}
