// The creation of an upload resource (draft-12 §4.2). The client receives the location before the content is read.

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
                // The client does not know the location and cannot resume.
                if !isLocationReported, upload.state.phase == .receiving { try? upload.remove() }
                throw error
            }
        } catch {
            refuse(error, upload: upload.creation.id, exists: isLocationReported)
        }
    }

    /// Creates an upload and sends its location to the client; returns nil if the request was refused.
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
            // Sent before content is read, so that a client whose connection fails can resume.
            if isLocationReported {
                ProgressReport.send(location: location(new.resourcePath), to: exchange, responses)
            }
            return upload
        } catch {
            refuse(error, upload: new.id, exists: false)
            return nil
        }
    }

    /// Whether the client is sent the upload's location in a 104 response before the request's content is read.
    var isLocationReported: Bool {
        dialect.allowsInterim(toCreationOf: head.contentLength)
            && context.interimStatuses.contains(104)
    }

    /// Whether the upload needs no resource: it is small and complete, and its client will not receive a location.
    func isUnreported(_ creation: UploadRequest.Creation) -> Bool {
        guard creation.completeness == .complete, let count = head.contentLength.count else {
            return false
        }
        return count <= Upload.maximumInBuffer && route.settings.reply == .upstream
            && !isLocationReported && !dialect.locatesFinalResponse
    }

    /// Asks the creation to release the upload; does nothing if its client has no location and could not resume.
    private var releaseOfCreation: @Sendable () -> Void {
        if isLocationReported { return exchange.interrupt }
        return {}
    }

    func newUpload() -> UploadCreation {
        var head = head
        // The field describes the message; the file's type is in `Upload-Metadata`.
        if dialect.family == .tus, !head.granted.contains(.contentType) {
            head.fields[.contentType] = nil
        }
        var creation = UploadCreation(
            id: .random(),
            route: route.name,
            owner: context.owner,
            head: head,
            remoteAddress: context.remoteAddress,
            created: gateway.clock.now
        )
        if context.owner == nil { creation.authorizedOwner = grant.owner }
        creation.maxSize = grant.maxSize
        creation.scheme = context.scheme
        creation.isRepeatable = route.mayRepeat(head)
        creation.promise = route.settings.promise
        return creation
    }

    /// Returns a new upload that has an upload resource, without the request fields that a record must not contain.
    func newResource() -> UploadCreation {
        var creation = newUpload()
        creation.resourcePath = route.resources.path(
            of: creation.id,
            creationPath: head.path
        )
        creation.head.fields = UpstreamFields.recorded(
            creation.head.fields,
            granted: creation.head.granted,
            policy: route.settings.fields
        )
        return creation
    }
}
