// The creation of an upload resource (draft-12 §4.2): the upload, its address told before any content is
// read, then its content.

import HTTPTypes
import SpoolgateDelivery
import SpoolgateExchange
import SpoolgateJournal
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import SpoolgateUpstream

extension Request {
    /// Creates an upload and receives the creation's content (draft-12 §4.2).
    func create(_ creation: UploadRequest.Creation) {
        guard let upload = beginCreation(creation) else { return }
        do throws(SpoolError) {
            defer { upload.unlock() }
            do throws(SpoolError) {
                try UploadOperation(self, upload, isCreation: true).receive(
                    upTo: UploadState.decide(creation, limits: route.settings.limits),
                    creation.completeness
                )
            } catch {
                // Its client was never told where it is: nobody comes back, and its room is needed.
                if !isLocationTold, upload.state.phase == .receiving { try? upload.remove() }
                throw error
            }
        } catch {
            refuse(error, upload: upload.creation.id, exists: isLocationTold)
        }
    }

    /// Makes an upload and tells its client where it is; nil where the request was refused.
    @inline(never)
    private func beginCreation(_ creation: UploadRequest.Creation) -> Upload? {
        let new = newResource()
        guard new.resourcePath.utf8.count <= UploadResources.longestPath else {
            refuse(.targetTooLong(limit: UploadResources.longestPath))
            return nil
        }
        do throws(SpoolError) {
            let upload = try gateway.spool.create(
                new,
                length: creation.length,
                expecting: head.contentLength.count ?? 0,
                requestRelease: releaseOfCreation
            )
            journal.created(upload)
            // Before any content is read, so that a client that is cut then can come back.
            if isLocationTold {
                ProgressReport.tell(location: location(new.resourcePath), to: exchange, responses)
            }
            return upload
        } catch {
            refuse(error, upload: new.id, exists: false)
            return nil
        }
    }

    /// Whether this request's client hears 104 and in it where its upload is.
    var isLocationTold: Bool {
        dialect.allowsInterim(toCreationOf: head.contentLength)
            && context.interimStatuses.contains(104)
    }

    /// Whether it is whole in this message, small, and of an upload that nobody will be told the URL of: then
    /// a resource would be made for nobody.
    func isUntold(_ creation: UploadRequest.Creation) -> Bool {
        guard creation.completeness == .complete, let count = head.contentLength.count else {
            return false
        }
        return count <= Upload.mostInBuffer && route.settings.reply == .upstream
            && !isLocationTold && !dialect.locatesFinalResponse
    }

    /// How a creation is asked to let go; not at all where its client was not told where the upload is
    /// and could not resume it.
    private var releaseOfCreation: @Sendable () -> Void {
        if isLocationTold { return exchange.interrupt }
        return {}
    }

    /// The upload that this request brings, with all its fields.
    func newUpload() -> UploadCreation {
        var head = head
        // It is of the message, which mostly has no content; the file's type is in the metadata.
        if dialect.family == .tus { head.fields[.contentType] = nil }
        return UploadCreation(
            id: .random(),
            route: route.name,
            owner: context.owner,
            authorizedOwner: context.owner == nil ? grant.owner : nil,
            maxSize: grant.maxSize,
            head: head,
            resourcePath: "",
            remoteAddress: context.remoteAddress,
            scheme: context.scheme,
            created: gateway.clock.now,
            isRepeatable: route.mayRepeat(head),
            promise: route.settings.promise,
            client: client
        )
    }

    /// The same with an upload resource, without what its record must not keep.
    func newResource() -> UploadCreation {
        var creation = newUpload()
        creation.resourcePath = route.resources.path(
            of: creation.id,
            creationPath: head.path
        )
        creation.head.fields = UpstreamFields.recorded(
            creation.head.fields,
            policy: route.settings.fields
        )
        return creation
    }
}
