// One delivery attempt of a locked upload: its begin, its content, its final response.
//
// The order of the calls is what makes "at most once" true: what an attempt begins with is on the disk
// before the upstream hears of it, and the final response before the content is removed. It decides nothing:
// what an outcome means is the gateway's business.

import HTTPTypes
import Posix
import UploadProtocol

extension Upload {
    /// Marks it whole and an attempt as begun: incoming or deferred -> active, by one rename.
    ///
    /// From here newer requests wait for the final response instead of requesting its release. If anything
    /// was ever promised of it, the attempt is durable on return, so that a power cut cannot make it
    /// be delivered twice.
    ///
    /// - Parameter isRepeatable: false: where the process dies before the final response the upload goes to
    ///   `hold`, also one that its creation calls repeatable.
    /// - Throws: `.disk`; nothing of it may be sent then.
    package func beginAttempt(isRepeatable: Bool = true) throws(SpoolError) {
        try requireData(while: queue == .incoming || queue == .deferred)
        let origin = queue
        try setWhole { next in
            next.attempts += 1
            // Until the move is made it waits as before.
            next.decide(nil, next: next.next)
        }
        try files.move(to: .active)
        do throws(SpoolError) {
            if isPromised { try files.syncPlace() }
            if creation.isRepeatable, !isRepeatable { try decideToHold() }
        } catch {
            // Nothing was sent, so it goes back; where the disk refuses that too, it is found in
            // `active` and treated as an attempt of unknown outcome, the safe mistake.
            try? files.move(to: origin)
            throw error
        }
        lock.setDelivering()
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
        let data = try requireData(while: queue != .corrupt)
        return try spool.onDisk { () throws(SystemError) in
            try data.descriptor.read(into: buffer, at: position, subject: data.subject)
        }
    }

    /// The open data file; nil once delivered or unlocked.
    ///
    /// For an upstream that links or copies it.
    package var dataFile: Int32? { files.data?.descriptor.number }

    /// active -> delivered: stores the final response and removes the content.
    ///
    /// Also incoming or deferred -> delivered, where the gateway itself refuses the upload for good.
    /// Where the disk does not take the response, it is stored without its content, and at the worst
    /// only its status, for which the record has room already. Survives the death of the process on
    /// return; a power cut too, if anything was ever promised of the upload.
    package func finish(with response: StoredResponse) throws(SpoolError) {
        try requireData(while: queue != .hold)
        if queue == .incoming { try setWhole { _ in } }
        let kept = try store(response) { $0.decide(nil) }
        if isPromised { try files.syncRecord() }
        try files.move(to: .delivered)
        spool.population.finish(id)
        knownResponse = kept
        // The final response is safe, even if a power cut undoes the move: a record that has a response and
        // is not for `hold` is delivered. Content that stays behind is removed by the next lock.
        _ = try? files.removeData()
    }

    /// The stored final response; nil unless delivered, or failed by that response.
    ///
    /// - Returns: the response, its content nil where that is not kept; nil too where that of a failed
    ///   one cannot be read.
    /// - Throws: `.corrupt` after setting aside a delivered upload whose response cannot be read.
    package func response() throws(SpoolError) -> StoredResponse? {
        let isFailed = queue == .hold && files.state.cause == .failed
        guard queue == .delivered || isFailed, !isUnlocked else { return nil }
        if let knownResponse { return knownResponse }
        switch try files.response() {
        case .success(let response):
            knownResponse = response
            return response
        case .failure(let fault):
            // What is kept of a failed one is its content.
            if isFailed { return nil }
            try files.setAside()
            throw .corrupt(id, reason: fault.reason)
        }
    }

    // MARK: Steps

    /// Says beforehand that an attempt without a final response is not repeated.
    private func decideToHold() throws(SpoolError) {
        func change(_ state: inout RecordState) {
            state.decide(Repair.outcomeUnknown, cause: .indeterminate)
        }
        if isPromised { try files.writeDurably(change) } else { try files.write(change) }
    }

    /// Writes that the content is whole, before the move that says so too.
    ///
    /// A record outside `incoming` must say a length that fits its content. So, once anything was
    /// promised, content and length are durable on return: a power cut may keep the move.
    ///
    /// - Throws: `.disk` also where content was cut back that was whole before (see `sync`).
    func setWhole(_ change: (inout RecordState) -> Void) throws(SpoolError) {
        guard files.state.verified == nil else {
            throw .contradiction(id, reason: "it was to be whole before all of it was verified")
        }
        guard state.length == nil || state.length == state.offset else {
            let lost = SystemError.lost
            throw .disk(SystemError(call: "delivery of", subject: path, errno: lost))
        }
        let (isPromised, size) = (isPromised, files.size)
        if isPromised, files.state.durable != size { try syncContent() }
        let whole = spool.clock.mended(files.state.whole) ?? spool.clock.now
        func write(_ next: inout RecordState) {
            next.length = size
            next.whole = whole
            if isPromised { next.durable = size }
            change(&next)
        }
        if isPromised { try files.writeDurably(write) } else { try files.write(write) }
    }

    /// Writes a response behind what the clients sent, and then the state that points to it.
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
                try files.write { state in
                    change(&state)
                    state.status = status
                }
            }
        }
        return kept
    }

    private func storeWhole(
        _ response: StoredResponse,
        _ change: (inout RecordState) -> Void
    ) throws(SpoolError) {
        let bytes = response.recordText
        let start = files.state.completion?.upperBound ?? files.creationEnd
        try files.write(bytes, at: start)
        spool.room.noteRecord(Int64(bytes.count))
        try files.write { state in
            change(&state)
            state.response = start..<start + Int64(bytes.count)
        }
    }
}
