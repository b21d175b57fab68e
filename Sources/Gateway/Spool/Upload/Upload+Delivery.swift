// The delivery of a locked upload: attempts, their outcome, and the moves to `deferred` or `hold` and back.
//
// The order of the calls guarantees "at most once": the start of an attempt is durable before the upstream receives
// anything, and the final response before the content is removed. Invariant: the record of a complete upload has the
// length of its content; nothing leaves `hold` without an operator; stored fields of the completing request are replaced
// only by completely written ones.

package import HTTPTypes
package import SpoolgatePosix
import SpoolgateUploadProtocol

extension HTTPField.Name {
    /// Lists the digests of the client's credentials that were refused; stored with the completing request's fields.
    ///
    /// No client can send such a field. Version 0.1.0 ignores it.
    package static let refusedCredentials = made("spoolgate-refused")
}

extension Upload {
    /// When the next attempt is due; nil if the upload is waiting for its client or an operator.
    package var nextAttempt: WallTime? { record.state.next }
    /// When the upload was completed or last requeued by an operator; nil if it is incomplete.
    package var completeSince: WallTime? { record.state.whole }
    package var attempts: Int { record.state.attempts }
    package var holdCause: HoldCause? { record.state.cause }
    /// When the client received 202; nil if it did not, and in a record of version 0.1.0.
    package var accepted: WallTime? { record.state.accepted }
    package var reason: String? { record.state.reason }

    // MARK: Attempts

    /// Marks the upload complete and moves it from `incoming` or `deferred` to `active`, for an attempt.
    ///
    /// From now on, newer requests wait for the final response instead of requesting the release of the upload. If the
    /// process ends before that response, the upload is put on `hold`, unless `isRepeatable` and its creation allow a
    /// retry. If no retry is allowed and the upload has ever had a durable offset, the start is durable on return, so
    /// that a power failure cannot cause a second delivery.
    ///
    /// - Throws: `.disk`; nothing may then be sent to the upstream.
    package func beginAttempt(isRepeatable: Bool = true) throws(SpoolError) {
        try require(that: queue == .incoming || queue == .deferred)
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
        try require(that: queue == .active)
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
        try require(that: ![.delivered, .corrupt].contains(queue))
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
        try require(that: [.incoming, .active, .deferred].contains(queue))
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

    // MARK: Postponing and holding

    /// What a deferred upload is waiting for, and until when.
    package enum Waiting {
        /// The time of the next attempt.
        case queue(WallTime)
        /// The client can continue until this time; if `lacksCredentials` is true, only with other credentials.
        case client(WallTime, lacksCredentials: Bool = false)
    }

    package var lacksCredentials: Bool { queue == .deferred && record.state.status == 401 }

    /// Moves the upload from `incoming` or `active` to `deferred`, or changes the time of a deferred upload.
    ///
    /// For a complete upload, if no attempt could start or the upstream did not accept the upload. The content is kept.
    /// `reason` explains to people why the upload was not delivered. On return, the change survives a crash; it
    /// survives a power failure only after the next `sync()`.
    ///
    /// - Throws: `.disk`; the state is then unchanged.
    package func postpone(
        reason: String?,
        _ waiting: Waiting,
        acceptingAt time: WallTime? = nil
    ) throws(SpoolError) {
        let accepted = record.state.accepted ?? time
        try require(that: [.incoming, .active, .deferred].contains(queue))
        try store()
        try setWhole(durably: false) { state in
            state.go(to: .deferred, reason)
            state.accepted = accepted
            if mayBeProcessed { state.then = .deferred }
            switch waiting {
            case .queue(let next): state.next = next
            case .client(let until, let lacksCredentials):
                state.until = until
                if lacksCredentials { state.status = 401 }
            }
        }
    }

    /// Queues the upload for an attempt at `time`, because its client receives 202 and does not wait.
    ///
    /// Durability and errors are those of `postpone`.
    package func accept(at time: WallTime) throws(SpoolError) {
        try postpone(reason: reason, .queue(time), acceptingAt: time)
    }

    /// Moves the upload from `incoming`, `active` or `deferred` to `hold`, where it waits for an operator.
    ///
    /// The change is durable on return. Content that cannot be made durable is lost; `state.offset` is then less than
    /// the length.
    ///
    /// `reason` is an explanation for people. `response` is the upstream's final response if it is the cause, otherwise
    /// nil.
    ///
    /// - Throws: `.disk`; the next lock then completes the change.
    package func hold(
        _ cause: HoldCause,
        reason: String,
        response: StoredResponse? = nil
    ) throws(SpoolError) {
        try require(that: [.incoming, .active, .deferred].contains(queue))
        let size = content.size
        let lost = "the content could not be made durable; \(reason)"
        func change(_ state: inout RecordState) {
            state.go(to: .hold, reason)
            state.cause = cause
            state.length = size
        }
        var isLost = false
        do throws(SpoolError) { try store() } catch {
            isLost = true
            try content.truncate(to: 0)
        }
        // One state has both, because a response without a cause would be that of a delivery.
        if let response {
            knownResponse = try store(response, change)
        } else {
            try record.write(change)
        }
        do throws(SpoolError) { try sync() } catch {
            guard state.offset != state.length else { throw error }
            isLost = true
        }
        guard isLost else { return }
        // The content was cut back, but the state and its reason can still be stored.
        try record.write { $0.reason = lost }
        try sync()
    }

    /// Moves a held upload to `deferred`, or changes the time of a deferred upload.
    ///
    /// The change is durable on return. The lifetime of the upload in the queue starts over, and the daemons check the
    /// queue.
    ///
    /// - Throws: `.disk`, also if a part of the content was lost (see `hold`).
    package func requeue(at next: WallTime) throws(SpoolError) {
        try require(that: queue == .hold || queue == .deferred)
        guard state.offset == state.length else {
            throw .disk(
                SystemError(call: "requeue of", subject: content.path, errno: SystemError.lost)
            )
        }
        try sync()
        try record.write(durably: creation.promise == .powerCut) { state in
            state.go(to: .deferred, state.reason)
            state.next = next
            state.whole = spool.clock.now
        }
        mayBeProcessed = false
        knownResponse = nil
        try forgetRefusals()
        spool.wake()
    }

    // MARK: The completing request

    /// Stores fields of the completing request for later attempts.
    ///
    /// On return, the fields survive a crash. They survive a power failure only after the next `sync()`; until then,
    /// the previously stored fields are kept. Only the user that owns the spool can read them.
    package func keepCompletion(_ fields: HTTPFields) throws(SpoolError) {
        // Also allowed after an attempt without a response. A stored response would be in the same place.
        try require(that: [.incoming, .active, .deferred].contains(queue))
        let bytes = fields.completionText(of: id)
        let before = record.state.completion
        if let before, try bytes == record.bytes(of: before) { return }
        let extent = try record.writePart(bytes, avoiding: before, isReplacement: true)
        // A power failure must not keep a state that points to lost fields.
        if before != nil, isPromised { try record.sync() }
        try record.write { $0.completion = extent }
    }

    /// Forgets which credentials were refused, because an operator has decided to send them again.
    func forgetRefusals() throws(SpoolError) {
        guard var fields = try completion(), fields.contains(.refusedCredentials) else { return }
        fields[.refusedCredentials] = nil
        try keepCompletion(fields)
        try sync()
    }

    /// Returns the stored fields of the completing request, and `refusedCredentials`.
    ///
    /// Returns nil if the fields are missing or damaged, or after the upload was unlocked.
    package func completion() throws(SpoolError) -> HTTPFields? {
        try isUnlocked ? nil : record.completion()
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
            if files.areNamesUncertain { try files.syncNames() }
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
            avoiding: record.state.completion,
            isReplacement: false
        )
        spool.room.noteRecord(Int64(extent.count))
        try record.write { state in
            change(&state)
            state.response = extent
        }
    }
}

extension Queue {
    func phase(_ cause: HoldCause?) -> UploadState.Phase {
        switch (self, cause) {
        case (.incoming, _): .receiving
        case (.active, _): .delivering
        case (.deferred, _): .deferred
        case (.hold, .failed): .failed
        case (.hold, .held): .held
        case (.hold, _), (.corrupt, _): .indeterminate
        case (.delivered, _): .delivered
        }
    }
}
