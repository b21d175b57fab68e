// One delivery attempt of a locked upload.
//
// The order of the calls guarantees "at most once": the start of an attempt is durable before the upstream receives
// anything, and the final response before the content is removed.

import HTTPTypes
import SpoolgatePosix
import SpoolgateUploadProtocol

extension Upload {
    /// Marks the upload complete and moves it from `incoming` or `deferred` to `active`, for an attempt.
    ///
    /// From now on, newer requests wait for the final response instead of requesting the release of the upload. If the
    /// process ends before that response, the upload is put on `hold`, unless `isRepeatable` and its creation allow a
    /// retry. If no retry is allowed and the upload has ever had a durable offset, the start is durable on return, so
    /// that a power failure cannot cause a second delivery.
    ///
    /// - Throws: `.disk`; nothing may then be sent to the upstream.
    package func beginAttempt(isRepeatable: Bool = true) throws(SpoolError) {
        try require(queue == .incoming || queue == .deferred)
        mayHaveBeenProcessed = mayBeProcessed
        let then: RecordState.Fallback = creation.isRepeatable && isRepeatable ? .deferred : .hold
        try setWhole(durably: then == .hold) { state in
            state.queue = .active
            state.attempts += 1
            state.reason = nil
            state.then = then
        }
        awaitFinalResponse()
    }

    /// Starts another attempt after the current one failed without any effect on the upstream.
    ///
    /// The upload stays in `active`. The start of the attempt is durable under the same conditions as in
    /// `beginAttempt`.
    package func beginNextAttempt() throws(SpoolError) {
        try require(queue == .active)
        let isDurable = record.state.then == .hold && isPromised
        try record.write(durably: isDurable) { $0.attempts += 1 }
    }

    /// Reads content from `position` into `buffer`, for the upstream.
    ///
    /// - Returns: the number of bytes read, which is less than the size of `buffer` only at the end of the content.
    /// - Throws: `.disk` if the content cannot be read.
    package func read(
        into buffer: UnsafeMutableRawBufferPointer,
        at position: Int64
    ) throws(SpoolError) -> Int {
        try require(![.delivered, .corrupt].contains(queue))
        return try content.read(into: buffer, at: position)
    }

    /// The descriptor of the data file, for delivery by a link or a copy; nil while the content is in memory.
    package var dataFile: Int32? { content.data?.descriptor.number }

    /// Calls `body` with the path of the data file; other programs can open the file until `body` returns.
    ///
    /// - Throws: the error of `body`; `.disk` if the content cannot be written to the file; `.full` or `.overQuota` if
    ///   an upload without a record needs a file and there is no room for it.
    package func withDataPath<R>(
        _ body: (String) throws(SpoolError) -> R
    ) throws(SpoolError) -> R {
        guard isRecorded else { return try content.withNamelessPath(body) }
        try content.openedData()
        return try body(content.path)
    }

    /// Stores the final response, removes the content and moves the upload to `delivered`.
    ///
    /// The upload must be in `active`, or in `incoming` or `deferred` if the gateway refuses it permanently. If the
    /// disk does not accept the response, only its status and fields are stored, or only its status. On return, the
    /// change survives a crash, and a power failure if the upload has ever had a durable offset.
    package func finish(with response: StoredResponse) throws(SpoolError) {
        try require([.incoming, .active, .deferred].contains(queue))
        let size = content.size
        knownResponse = try store(response) { state in
            state.go(to: .delivered, nil)
            state.length = size
        }
        spool.room.noteFinished(of: creation.client)
        // If the content remains, the next lock removes it.
        _ = try? content.remove()
    }

    /// Reads the stored final response of a delivered or held upload.
    ///
    /// - Returns: the response, without content if only the head was stored; nil if the upload has no response, or if
    ///   the response of a held upload cannot be read.
    /// - Throws: `.corrupt` after a delivered upload was moved to `corrupt` because its response cannot be read;
    ///   `.newer` if a newer program wrote the response.
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

    /// Writes a state that marks the content complete and has the changes made by `change`.
    ///
    /// The content and the state are durable on return if `durably` is true and the upload has ever had a durable
    /// offset.
    ///
    /// - Throws: `.disk`, also if content was cut back (see `sync()`).
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

    /// Writes a response into the record, and then a state that refers to it.
    ///
    /// Both are durable on return if the upload has ever had a durable offset.
    ///
    /// - Returns: the response as stored (see `finish(with:)`).
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
