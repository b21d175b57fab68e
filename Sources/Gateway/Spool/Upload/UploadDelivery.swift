// One delivery attempt of a locked upload: its begin, its content, its final response.
//
// The order of the calls is what makes "at most once" true: what an attempt begins with is on the disk
// before the upstream hears of it, and the final response before the content is removed. It decides nothing:
// what an outcome means is the gateway's business.

import HTTPTypes
import SpoolgatePosix
import SpoolgateUploadProtocol

extension Upload {
    /// Marks it whole and an attempt as begun: incoming or deferred -> active, by one state.
    ///
    /// From here newer requests wait for the final response instead of requesting its release. If anything
    /// was ever promised of it and the attempt is not to be repeated, its begin is durable on return, so that
    /// a power cut cannot make it be delivered twice.
    ///
    /// - Parameter isRepeatable: false: where the process dies before the final response the upload goes to
    ///   `hold`, also one that its creation calls repeatable.
    /// - Throws: `.disk`; nothing of it may be sent then.
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

    /// active -> active: the attempt under way has ended, nothing was taken, and another one begins.
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
    ///   - buffer: is filled from its start.
    ///   - position: where in the content to begin.
    /// - Returns: the bytes read; less than asked only at the end of the content.
    /// - Throws: `.disk` where they cannot be read.
    package func read(
        into buffer: UnsafeMutableRawBufferPointer,
        at position: Int64
    ) throws(SpoolError) -> Int {
        try require(![.delivered, .corrupt].contains(queue))
        return try content.read(into: buffer, at: position)
    }

    /// The descriptor of the content's file, for an upstream that links or copies it; nil where there is
    /// none, as while the content is in memory.
    package var dataFile: Int32? { content.data?.descriptor.number }

    /// Calls `body` with the path of the content's file, for programs that open it themselves; good until `body`
    /// returns.
    ///
    /// - Throws: what `body` throws; `.disk` where the content cannot be put there, `.full` and `.overQuota` of one
    ///   without a record.
    package func withDataPath<R>(
        _ body: (String) throws(SpoolError) -> R
    ) throws(SpoolError) -> R {
        guard isRecorded else { return try content.withNamelessPath(body) }
        try content.openedData()
        return try body(content.path)
    }

    /// active -> delivered: stores the final response and removes the content.
    ///
    /// Also incoming or deferred -> delivered, where the gateway itself refuses the upload for good.
    /// Where the disk does not take the response, it is stored without its content, and at the worst
    /// only its status, for which the record has room already. Survives the death of the process on
    /// return; a power cut too, if anything was ever promised of the upload.
    package func finish(with response: StoredResponse) throws(SpoolError) {
        try require([.incoming, .active, .deferred].contains(queue))
        let size = content.size
        knownResponse = try store(response) { state in
            state.go(to: .delivered, nil)
            state.length = size
        }
        spool.room.noteFinished(of: creation.client)
        // The final response is safe. Content that stays behind is removed by the next lock.
        _ = try? content.remove()
    }

    /// The stored final response; nil unless delivered, or held with that response.
    ///
    /// - Returns: the response, its content nil where that is not kept; nil too where that of a held
    ///   one cannot be read.
    /// - Throws: `.corrupt` after setting aside a delivered upload whose response cannot be read; `.newer`
    ///   where a newer program wrote it.
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
            // What is kept of a held one is its content.
            if isHeld { return nil }
            guard fault.kind != .newer else { throw .newer(id, reason: fault.reason) }
            try files.setAside()
            throw .corrupt(id, reason: fault.reason)
        }
    }

    // MARK: Steps

    /// Writes that the content is whole, and what follows from it, as one state.
    ///
    /// - Parameters:
    ///   - durably: whether content and state are durable on return, if anything was ever promised.
    ///   - change: what follows.
    /// - Throws: `.disk` also where content was cut back that was whole before (see `sync`).
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
        let whole = spool.clock.mended(record.state.whole) ?? spool.clock.now
        try record.write(durably: isSynced) { next in
            next.length = size
            next.whole = whole
            if isSynced { next.durable = size }
            change(&next)
        }
    }

    /// Writes a response behind what the clients sent, and then the state that points to it; durably, if
    /// anything was ever promised.
    ///
    /// Where the disk does not take it, without its content, and at the worst only its status.
    ///
    /// - Parameters:
    ///   - response: the response.
    ///   - change: what else the state says from then on.
    /// - Returns: what was stored.
    /// - Throws: `.disk` where not even the status could be written.
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
        // Where this fails the response is known all the same, and survives the process.
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
