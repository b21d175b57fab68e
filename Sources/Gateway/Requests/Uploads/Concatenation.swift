// An upload made of parts (tus, "concatenation"): its parts joined, then delivered once as any other.
//
// The parts are locked in the order of their identities, so that two such requests cannot wait for each
// other. A client that lost the answer repeats its request: the parts tell which upload it made.
// Invariant: parts are consumed only once the upload made of them is durable, and before it is delivered; no
// list of parts makes two.

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
    /// Makes an upload of parts and delivers it, or tells again what became of it.
    func concatenate(_ urls: [String]) {
        let ids: [UploadID]
        do throws(Refusal) { ids = try parts(urls) } catch { return refuse(error) }
        // For all that it waits for together.
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

    /// The identities that URLs name, which are paths or of this origin.
    ///
    /// - Throws: 400 where one is none, or there twice; 409 where another node has one.
    private func parts(_ urls: [String]) throws(Refusal) -> [UploadID] {
        var ids: [UploadID] = []
        for url in urls {
            let isPath = url.beginsWithBytes(of: "/") && !url.beginsWithBytes(of: "//")
            let path = isPath ? url : pathHere(url)
            switch path.map({ route.resources.match($0) }) {
            case .resource(let id)? where !ids.contains(id): ids.append(id)
            case .elsewhere(.resource)?: throw .partElsewhere
            default: throw .noPart(url)
            }
        }
        return ids
    }

    /// The path of a URL at this service, by the name that the web server tells or the one that the client used.
    private func pathHere(_ url: String) -> String? {
        let host = head.fields.value(of: .host)
        return [context.origin, host.map { "https://\($0)" }, host.map { "http://\($0)" }].lazy
            .compactMap { url.path(below: $0) }.first
    }

    /// Locks the parts; nil where this request was answered here.
    ///
    /// - Returns: the parts in the order of `ids`.
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

    /// Bytes of an upload made of these parts.
    ///
    /// - Throws: why none can be made of them.
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
        // What the parts have was promised that much.
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
            // From here on the parts are consumed.
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

    /// Consumes the parts and unlocks them.
    private func consume(_ parts: [Upload], by creation: UploadCreation) throws(SpoolError) {
        for part in parts { try part.consume(for: location(creation.resourcePath)) }
        for part in parts { part.unlock() }
    }

    /// Goes on with the upload that a part went into before, where it was made of these parts.
    ///
    /// - Returns: false where there is none: it was left half-made, which the lock removes, or is gone.
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
            // Who made it may have died before it was durable.
            try upload.sync()
            try consume(parts, by: upload.creation)
            try UploadOperation(self, upload, isCreation: true)
                .carryOut(upload.state.decideAtEnd(.complete, dialect: dialect))
        }
        return isThere
    }
}
