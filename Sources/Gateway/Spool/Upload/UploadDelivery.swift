// One delivery attempt of a locked upload: its start, its content and its final response.
//
// The order of the calls guarantees "at most once": the start of an attempt is durable before the upstream receives
// anything, and the final response before the content is removed.

import HTTPTypes
import SpoolgatePosix
import SpoolgateUploadProtocol

extension Upload {
    /// Marks it complete and starts an attempt: incoming or deferred -> active, in one state.
    ///
    /// From now on newer requests wait for the final response instead of requesting its release. If the upload ever had
    /// a durable offset and the attempt must not be retried, the start is durable on return, so that a power failure
    /// cannot cause a second delivery.
    ///
    /// - Parameter isRepeatable: false: if the process ends before the final response, the upload is put on `hold`,
    ///   even if its creation allows a retry.
    /// - Throws: `.disk`; nothing may be sent to the upstream then.
    package func beginAttempt(isRepeatable: Bool = true) throws(SpoolError) {
        try require(queue == .incoming || queue == .deferred)
        let then: RecordState.Fallback = creation.isRepeatable && isRepeatable ? .deferred : .hold
        try setWhole(durably: then == .hold) { state in
            state.queue = .active
            state.attempts += 1
            state.reason = nil
            state.then = then
        }
        awaitFinalResponse()
    }

    /// active -> active: the current attempt has failed without effect, and another one starts.
    ///
    /// Durable as by `beginAttempt`.
    package func beginNextAttempt() throws(SpoolError) {
        try require(queue == .active)
        let isDurable = record.state.then == .hold && isPromised
        try record.write(durably: isDurable) { $0.attempts += 1 }
    }

    /// Reads content for the upstream.
    ///
    /// - Parameters:
    ///   - buffer: filled from its start.
    ///   - position: the offset in the content.
    /// - Returns: the number of bytes read; fewer than requested only at the end of the content.
    /// - Throws: `.disk` if the content cannot be read.
    package func read(
        into buffer: UnsafeMutableRawBufferPointer,
        at position: Int64
    ) throws(SpoolError) -> Int {
        try require(![.delivered, .corrupt].contains(queue))
        return try content.read(into: buffer, at: position)
    }

    /// The descriptor of the data file, for an upstream that links or copies it; nil while the content is in memory.
    package var dataFile: Int32? { content.data?.descriptor.number }

    /// Calls `body` with the path of the data file, for programs that open it; valid until `body` returns.
    ///
    /// - Throws: what `body` throws; `.disk` if the content cannot be written to the file; `.full` and `.overQuota` for
    ///   an upload without a record.
    package func withDataPath<R>(
        _ body: (String) throws(SpoolError) -> R
    ) throws(SpoolError) -> R {
        guard isRecorded else { return try content.withNamelessPath(body) }
        try content.openedData()
        return try body(content.path)
    }

    /// active -> delivered: stores the final response and removes the content.
    ///
    /// Also incoming or deferred -> delivered, if the gateway itself refuses the upload permanently. If the disk does
    /// not accept the response, only its status and fields are stored, or only its status, for which the record always
    /// has room. Survives a crash on return, and a power failure if the upload ever had a durable offset.
    package func finish(with response: StoredResponse) throws(SpoolError) {
        try require([.incoming, .active, .deferred].contains(queue))
        let size = content.size
        knownResponse = try store(response) { state in
            state.go(to: .delivered, nil)
            state.length = size
        }
        spool.room.noteFinished(of: creation.client)
        // The final response is stored. If the content remains, the next lock removes it.
        _ = try? content.remove()
    }

    /// Returns the stored final response of a delivered upload, or of one held with a response.
    ///
    /// - Returns: the response, without content if that was not stored; nil if the response of a held upload cannot be
    ///   read.
    /// - Throws: `.corrupt` after a delivered upload was moved to `corrupt` because its response cannot be read;
    ///   `.newer` if a newer program wrote it.
    package func response() throws(SpoolError) -> StoredResponse? {
        let isStored = record.state.response != nil || record.state.status != nil
        let isHeld = queue == .hold && isStored
        guard queue == .delivered || isHeld, !isUnlocked else { return nil }
        if let knownResponse { return knownResponse }
        switch try record.response() {
        case .success(let response):
            knownResponse = response
            return response
        case .failure(let fault):
            // A held upload is kept for its content.
            if isHeld { return nil }
            guard fault.kind != .newer else { throw .newer(id, reason: fault.reason) }
            try files.setAside()
            throw .corrupt(id, reason: fault.reason)
        }
    }

    // MARK: Steps

    /// Writes one state that says that the content is complete, and what follows from that.
    ///
    /// - Parameters:
    ///   - durably: whether content and state are durable on return, if the upload ever had a durable offset.
    ///   - change: sets what follows.
    /// - Throws: `.disk`, also if complete content was cut back (see `sync`).
    func setWhole(
        durably: Bool,
        _ change: (inout RecordState) -> Void
    ) throws(SpoolError) {
        guard record.state.verified == nil else {
            throw .contradiction(id, reason: "it cannot be complete before all content is verified")
        }
        guard state.length == nil || state.length == state.offset else {
            let lost = SystemError.lost
            throw .disk(SystemError(call: "delivery of", subject: content.path, errno: lost))
        }
        let size = content.size
        let isSynced = durably && isPromised
        if isSynced, record.state.durable != size {
            try store()
            try syncContent()
            if files.areNamesInDoubt { try files.syncNames() }
        } else if isSynced, content.mayBeShared {
            try files.syncNames()
        }
        let whole = spool.clock.corrected(record.state.whole) ?? spool.clock.now
        try record.write(durably: isSynced) { next in
            next.length = size
            next.whole = whole
            if isSynced { next.durable = size }
            change(&next)
        }
    }

    /// Writes a response into the record, then the state that points to it.
    ///
    /// Both are made durable if the upload ever had a durable offset. If the disk does not accept the response, less is
    /// stored, as by `finish(with:)`.
    ///
    /// - Parameters:
    ///   - response: the response.
    ///   - change: changes the rest of the state.
    /// - Returns: the response as stored.
    /// - Throws: `.disk` if not even the status could be written.
    func store(
        _ response: StoredResponse,
        _ change: (inout RecordState) -> Void
    ) throws(SpoolError) -> StoredResponse {
        var kept = response
        do throws(SpoolError) { try storeWhole(kept, change) } catch {
            kept.content = nil
            do throws(SpoolError) { try storeWhole(kept, change) } catch {
                let status = response.head.status.code
                kept.head = ResponseHead(status: .init(code: status), fields: [:])
                try record.write { state in
                    change(&state)
                    state.status = status
                }
            }
        }
        // If this fails, the response is still known and survives a crash.
        if isPromised { try record.sync() }
        return kept
    }

    private func storeWhole(
        _ response: StoredResponse,
        _ change: (inout RecordState) -> Void
    ) throws(SpoolError) {
        let extent = try record.writePart(
            response.recordText(of: id),
            beside: record.state.completion,
            isReplacement: false
        )
        spool.room.noteRecord(Int64(extent.count))
        try record.write { state in
            change(&state)
            state.response = extent
        }
    }
}
