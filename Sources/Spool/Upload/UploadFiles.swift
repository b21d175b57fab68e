// The open, locked files of one upload: reading what they say, and making them legal again.
//
// Shared by attaching and recovery, so that both take the same files for the same thing. Invariant:
// every step here leaves a combination of files that spoolgate-spool(5) has a row for.

import Posix
import UploadProtocol

/// The files of one upload, locked by the caller.
struct UploadFiles {
    /// The upload.
    let id: UploadID
    /// Where its record is.
    var queue: Queue
    /// Its data file; nil: there is none.
    var data: OpenFile?
    /// Its record.
    let file: OpenFile
}

/// What the files of one upload say.
struct FoundUpload {
    /// The files.
    var files: UploadFiles
    /// The record.
    var record: LoadedRecord
    /// The size of the data file; nil: there is none.
    var dataSize: Int64?
    /// Why it has no stored response; nil if it has one.
    var responseFault: UnreadableRecord?
    /// When content or state last changed.
    var lastActivity: WallTime
}

extension Spool {
    /// Reads what an upload's files say; sets a record aside that cannot be read.
    ///
    /// - Parameters:
    ///   - files: the files.
    ///   - readsResponse: whether to read a delivered upload's response too. Otherwise it is read
    ///     when it is asked for.
    /// - Returns: what they say.
    /// - Throws: `.corrupt` after setting the record aside.
    func load(_ files: UploadFiles, readsResponse: Bool) throws(SpoolError) -> FoundUpload {
        let (status, read) = try onDisk { () throws(SystemError) in
            let status = try files.file.status()
            let (id, size) = (files.id, status.size)
            return (
                status, try LoadedRecord.read(files.file, of: id, size: size, knowing: creations)
            )
        }
        switch read {
        case .failure(let fault):
            try setAside(files)
            throw .corrupt(files.id, reason: fault.reason)
        case .success(let record):
            return try onDisk { () throws(SystemError) in
                let dataStatus = try files.data?.status()
                var fault: UnreadableRecord?
                // In `hold` nothing follows from it.
                if (files.queue != .delivered && files.queue != .hold) || readsResponse,
                    case .failure(let found) = try record.response(in: files.file)
                {
                    fault = found
                }
                return FoundUpload(
                    files: files,
                    record: record,
                    dataSize: dataStatus?.size,
                    responseFault: fault,
                    lastActivity: max(status.modified, dataStatus?.modified ?? status.modified)
                )
            }
        }
    }

    /// Carries out a repair; `found` says afterwards what is there.
    ///
    /// - Throws: `.corrupt` after setting an upload aside.
    func apply(_ repair: Repair, to found: inout FoundUpload) throws(SpoolError) {
        let reason = Repair.interrupted
        switch repair {
        case .keep: return
        case .cutBack(let size):
            let data = found.files.data
            try onDisk { () throws(SystemError) in
                if let data { try disk.truncate(data, to: size) }
            }
            room.giveBack((found.dataSize ?? size) - size)
            found.dataSize = size
            if found.record.state.verified != nil {
                try write(&found) { $0.verified = nil }
            }
        case .receiveAgain:
            try write(&found) { $0.takeUpAgain() }
            try move(&found, to: .incoming)
        case .putOff:
            // Its client heard of no failure: it is the queue's to repeat.
            try write(&found) { $0.decide(reason, next: clock.now) }
            try move(&found, to: .deferred)
        case .hold:
            try write(&found) {
                $0.decide(reason + "; its outcome is unknown", cause: .indeterminate)
            }
            try move(&found, to: .hold)
        case .finishDeferral:
            try move(&found, to: .deferred)
        case .finishHold:
            try syncAgain(found)
            try move(&found, to: .hold)
        case .finishDelivery:
            try finishDelivery(&found)
        case .forget:
            try removeFiles(of: found.files)
        case .setAside(let reason):
            try setAside(found.files)
            throw .corrupt(found.files.id, reason: reason)
        }
    }

    /// Moves the record to `corrupt`; the data file stays where it is.
    func setAside(_ files: UploadFiles) throws(SpoolError) {
        let name = FileName(files.id)
        try onDisk { () throws(SystemError) in
            try disk.rename(
                name.name,
                in: layout[files.queue][name],
                to: name.name,
                in: layout[.corrupt][name]
            )
        }
        population.remove(files.id)
    }

    /// Opens files of an upload; sets it aside where one of them is something else than a file.
    ///
    /// - Throws: `.corrupt` then, if it has a record.
    func openSound<R>(_ id: UploadID, _ body: () throws(SystemError) -> R?) throws(SpoolError) -> R?
    {
        do throws(SystemError) { return try body() } catch {
            guard error.isNotRegular else { throw failure(error) }
            let name = FileName(id)
            // A move touches the name alone, whatever it stands for. It has no lock that would mean
            // anything, and nobody can use it.
            for queue in SpoolLayout.usable {
                let isMoved = try onDisk { () throws(SystemError) in
                    guard try layout[queue][name].status(of: name.name) != nil else { return false }
                    try disk.rename(
                        name.name,
                        in: layout[queue][name],
                        to: name.name,
                        in: layout[.corrupt][name]
                    )
                    return true
                }
                if isMoved { throw .corrupt(id, reason: "\(error.subject) is no regular file") }
            }
            return nil
        }
    }

    /// Removes an upload: first the record, so that nothing half is ever found, then the content.
    ///
    /// For one of which nothing was promised: a power cut may bring it back, and it is forgotten again.
    ///
    /// - Throws: `.disk` where a part of it is there still.
    func removeFiles(of files: UploadFiles) throws(SpoolError) {
        creations.forget(files.id)
        let name = FileName(files.id)
        try onDisk { () throws(SystemError) in
            let record = try room.sizeOfRecord(name.name, in: layout[files.queue][name])
            try disk.unlink(name.name, in: layout[files.queue][name])
            population.remove(files.id)
            room.giveBackRecord(record)
            guard let data = files.data else { return }
            let size = try data.status().size
            if try disk.unlink(name.name, in: layout.data[name]) { room.giveBack(size) }
        }
    }

    /// Makes the removal of a record durable, wherever it could come back to: its last move may not
    /// be durable.
    func syncRemoval(of name: FileName, from queue: Queue) throws(SystemError) {
        for place in Queue.places(ofRemovalFrom: queue) {
            try disk.syncDirectory(layout[place][name])
        }
    }

    private func move(_ found: inout FoundUpload, to queue: Queue) throws(SpoolError) {
        let files = found.files
        let name = FileName(files.id)
        try onDisk { () throws(SystemError) in
            try disk.rename(
                name.name,
                in: layout[files.queue][name],
                to: name.name,
                in: layout[queue][name]
            )
        }
        found.files.queue = queue
    }

    private func write(
        _ found: inout FoundUpload,
        _ change: (inout RecordState) -> Void
    ) throws(SpoolError) {
        var state = found.record.state
        change(&state)
        state.sequence += 1
        try onDisk { () throws(SystemError) in
            try disk.write(state.slot, to: found.files.file, at: state.slotPosition)
        }
        found.record.state = state
    }

    private func finishDelivery(_ found: inout FoundUpload) throws(SpoolError) {
        if found.files.queue != .delivered {
            try syncAgain(found)
            try move(&found, to: .delivered)
        }
        let name = FileName(found.files.id)
        _ = try onDisk { () throws(SystemError) in
            try disk.unlink(name.name, in: layout.data[name])
        }
        room.giveBack(found.dataSize ?? 0)
        population.finish(found.files.id)
        found.files.data = nil
        found.dataSize = nil
    }

    /// Makes a verdict durable, if anything was ever promised: a sync of it may have failed before.
    private func syncAgain(_ found: FoundUpload) throws(SpoolError) {
        guard found.record.state.durable != nil else { return }
        try onDisk { () throws(SystemError) in
            try disk.writeAgain(found.files.file)
            try disk.sync(found.files.file)
        }
    }
}
