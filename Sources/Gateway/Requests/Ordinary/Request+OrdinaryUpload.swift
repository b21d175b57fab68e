// An ordinary upload: received completely and delivered with its length, or streamed if the route says
// `ordinary: pass`.
//
// A client cannot resume an ordinary upload, so incomplete content is removed with its request. The upload has a record
// only if the route replies `accepted`. Invariant: an ordinary upload waits for no other upload.

import SpoolgateDelivery
import SpoolgateExchange
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateUploadProtocol

extension Request {
    /// Delivers, accepts or passes through an ordinary upload, depending on its route.
    ///
    /// If `isMarked` is true, the request uses an upload protocol, but its upload needs no resource (`isUnreported(_:)`).
    func takeOrdinaryUpload(isMarked: Bool) {
        // A marked upload is complete in one small message, and may have digests to verify.
        if !isMarked {
            if route.settings.ordinary == .pass {
                return passThrough(upTo: route.settings.limits.maxSize, isUpload: true) { $0 }
            }
            // The client may wait for a response to its first bytes, which would never be sent.
            if StructuredField.boolean(.incremental, in: head.fields) == true {
                return refuse(.incrementalRefused)
            }
        }
        let plan: DigestPlan
        do throws(Refusal) {
            plan = try DigestPlan(ordinary: head.fields, route: route)
        } catch {
            return refuse(error)
        }
        do throws(SpoolError) {
            let upload = try newOrdinaryUpload()
            defer { upload.unlock() }
            do throws(SpoolError) {
                try take(upload, plan)
            } catch {
                // The client will send the upload again, so this copy must not be delivered as well.
                try? upload.remove(durably: true)
                throw error
            }
        } catch {
            note(error, upload: nil)
            refuse(error.refusal)
        }
    }

    private func newOrdinaryUpload() throws(SpoolError) -> Upload {
        let expected = head.contentLength.count ?? 0
        switch route.settings.reply {
        case .upstream:
            return try gateway.spool.createUnrecorded(newUpload(), expecting: expected)
        case .accepted:
            return try gateway.spool.create(
                newResource(),
                length: head.contentLength.count,
                expecting: expected,
                requestRelease: {}
            )
        }
    }

    private func take(_ upload: Upload, _ plan: DigestPlan) throws(SpoolError) {
        let reading = DigestReading(plan.algorithms)
        let end = try gateway.transfers.countingOrdinary { () throws(SpoolError) in
            defer { notePath(upload) }
            return try receive(upload, reading)
        }
        switch end {
        case .ended where !exchange.isPeerGone:
            switch plan.checked(reading.finish()) {
            case .success(let digests): try send(upload, digests)
            case .failure(let refusal):
                try upload.remove()
                refuse(refusal)
            }
        case .ended, .interrupted:
            try upload.remove()
            exchange.abort()
        case .exceeded:
            try upload.remove()
            refuse(route.settings.limits.tooLarge)
        }
    }

    @inline(never)
    private func notePath(_ upload: Upload) {
        let path = contentPath(.ordinary)
        journal.written(upload, path, nginx: 0, gateway: upload.offset, on: route.counts)
    }

    /// Receives the content; small content of an upload without a record stays in the buffer.
    private func receive(
        _ upload: Upload,
        _ reading: DigestReading
    ) throws(SpoolError) -> ReceptionEnd {
        let room = route.settings.limits.maxSize
        let pool = gateway.spool.buffers
        let buffer = try pool.take()
        var isKept = false
        defer { if !isKept { pool.put(buffer) } }
        var reception = Reception(
            of: self,
            into: upload,
            by: buffer,
            upTo: room,
            reading: reading
        )
        if !upload.isRecorded, head.contentLength.count ?? 0 <= Upload.maximumInBuffer {
            let end = reception.hold(upTo: Int(min(Int64(Upload.maximumInBuffer), room)))
            buffer.withBytes { reading.update($0) }
            if let end {
                upload.keep(buffer)
                isKept = true
                return end
            }
            guard Int64(buffer.count) <= room else { return .exceeded }
            try buffer.withBytes { bytes throws(SpoolError) in try upload.append(bytes) }
        }
        return try reception.run()
    }

    @inline(never)
    private func send(_ upload: Upload, _ digests: UploadDigests) throws(SpoolError) {
        guard !upload.isRecorded else {
            log.received(upload.creation.id, offset: upload.offset)
            journal.completed(upload)
            if !replacedCredentials.isEmpty {
                try delivery(on: route, journal).keepCompletion(upload, completing)
            }
            return try UploadOperation(self, upload, isCreation: true).accept()
        }
        var listener = ResponseListener(
            responses,
            completing: head.fields,
            isOrdinary: isOrdinary
        )
        listener.exchange = exchange
        if let refusal = try delivery(on: route, journal)
            .deliver(upload, to: listener, digests)
        {
            noteRejected(refusal)
            refuse(refusal)
        }
    }
}
