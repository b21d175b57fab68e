// Concatenation (tus): creates an upload from parts and delivers it once, like any other upload.
//
// The parts are locked in the order of their IDs, so that two concatenations cannot wait for each other. A client that
// lost the response repeats its request; the parts then identify the upload. Invariant: the parts are consumed after
// the new upload is durable and before it is delivered; a list of parts never results in two uploads.

import HTTPTypes
import SpoolgateDelivery
import SpoolgateExchange
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import SpoolgateUpstream

extension Request {
    /// Creates an upload from the parts at `urls` and delivers it; a repeated request receives the first one's result.
    func concatenate(_ urls: [String]) {
        let ids: [UploadID]
        do throws(Refusal) { ids = try parts(urls) } catch { return refuse(error) }
        let deadline = Deadline.after(inUseTimeout)
        do throws(SpoolError) {
            guard let parts = try lock(ids, until: deadline) else { return }
            defer { for part in parts { part.unlock() } }
            for final in parts.compactMap(\.final) where goOn(final, with: parts, until: deadline) {
                return
            }
            let length: Int64
            do throws(Refusal) { length = try self.length(of: parts) } catch {
                return refuse(error)
            }
            try join(parts, length)
        } catch {
            note(error, upload: nil)
            refuse(error.refusal)
        }
    }

    // MARK: The parts

    /// The upload IDs in `urls`, which are paths or URLs of this origin.
    ///
    /// - Throws: 400 if a URL is not an upload's or occurs twice, 409 if an upload is on another node.
    private func parts(_ urls: [String]) throws(Refusal) -> [UploadID] {
        var ids: [UploadID] = []
        var known: Set<UploadID> = []
        for url in urls {
            let isPath = url.beginsWithBytes(of: "/") && !url.beginsWithBytes(of: "//")
            let path = isPath ? url : pathHere(url)
            switch path.map({ route.resources.match($0) }) {
            case .resource(let id)? where known.insert(id).inserted: ids.append(id)
            case .elsewhere(.resource)?: throw .partElsewhere
            default: throw .noPart(url)
            }
        }
        return ids
    }

    /// The path in a URL of the web server's origin or of the host that the client used; nil for other URLs.
    private func pathHere(_ url: String) -> String? {
        let host = head.fields.value(of: .host)
        return [context.origin, host.map { "https://\($0)" }, host.map { "http://\($0)" }].lazy
            .compactMap { url.path(below: $0) }.first
    }

    /// Locks the parts; returns them in the order of `ids`, or nil if a refusal was sent.
    private func lock(_ ids: [UploadID], until deadline: Deadline) throws(SpoolError) -> [Upload]? {
        var locked: [UploadID: Upload] = [:]
        func unlock() { for upload in locked.values { upload.unlock() } }
        for id in ids.sorted(by: { $0.description < $1.description }) {
            do throws(SpoolError) {
                let found = try gateway.spool.lock(
                    id,
                    until: deadline,
                    admits: isOurs,
                    requestRelease: {}
                )
                guard let found else {
                    unlock()
                    refuse(.unknownUpload)
                    return nil
                }
                locked[id] = found
            } catch {
                unlock()
                guard case .busy = error else { throw error }
                refuse(.finalResponsePending)
                return nil
            }
        }
        return ids.compactMap { locked[$0] }
    }

    /// The number of bytes of all parts; throws a refusal if they are unsuitable or too large.
    private func length(of parts: [Upload]) throws(Refusal) -> Int64 {
        if parts.contains(where: { $0.state.kind.isPart && $0.state.phase == .delivered }) {
            throw .partConsumed
        }
        let isSound = parts.allSatisfy { part in
            part.state.kind.isPart && part.state.phase == .receiving
                && part.state.length == part.state.offset
        }
        guard isSound else { throw .partUnfinished }
        var sum: Int64 = 0
        for part in parts {
            let (next, overflow) = sum.addingReportingOverflow(part.state.offset)
            sum = overflow ? .max : next
            if let refusal = route.settings.limits.refusal(ofSize: sum) { throw refusal }
        }
        return sum
    }

    // MARK: The upload

    private func join(_ parts: [Upload], _ length: Int64) throws(SpoolError) {
        var creation = newResource()
        // The upload inherits the strongest promise of its parts.
        if parts.contains(where: { $0.creation.promise == .powerCut }) {
            creation.promise = .powerCut
        }
        let upload = try gateway.spool.create(
            creation,
            length: length,
            expecting: length,
            requestRelease: {}
        )
        defer { upload.unlock() }
        journal.created(upload)
        do throws(SpoolError) {
            for part in parts { try part.goInto(upload.creation.id) }
            for part in parts { try upload.append(contentOf: part) }
            // From this point the upload is kept after a crash, so its parts count as consumed.
            let end = route.settings.queue.end(from: gateway.clock.now)
            try upload.postpone(reason: nil, .client(end))
            try upload.sync()
        } catch {
            try? upload.remove(durably: true)
            throw error
        }
        journal.completed(upload)
        try consume(parts, by: upload.creation)
        try UploadOperation(self, upload, isCreation: true).complete()
    }

    private func consume(_ parts: [Upload], by creation: UploadCreation) throws(SpoolError) {
        for part in parts { try part.consume(for: location(creation.resourcePath)) }
        for part in parts { part.unlock() }
    }

    /// Continues with the upload that a part already belongs to, if that upload consists of exactly these parts.
    ///
    /// - Returns: false if the upload was removed, or was incomplete and therefore removed when it was locked.
    private func goOn(_ id: UploadID, with parts: [Upload], until deadline: Deadline) -> Bool {
        var isThere = true
        withUpload(
            id,
            patience: deadline.remaining,
            otherwise: { isThere = false }
        ) { operation throws(SpoolError) in
            let upload = operation.upload
            guard upload.creation.parts == parts.map(\.creation.id) else {
                return refuse(.partConsumed)
            }
            // The process that made the upload may have crashed before it was durable.
            try upload.sync()
            try consume(parts, by: upload.creation)
            try UploadOperation(self, upload, isCreation: true)
                .carryOut(upload.state.decideAtEnd(.complete, dialect: dialect))
        }
        return isThere
    }
}
