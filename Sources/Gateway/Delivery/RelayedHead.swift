// The limit on the head of a response relayed to a client: the size that web servers accept.

package import SpoolgateJournal
package import SpoolgateUploadProtocol

extension ResponseHead {
    /// The head without the fields that exceed the limit; a log line reports that fields were removed.
    package func fitting(telling log: Log, upload: UploadID? = nil) -> ResponseHead {
        guard fieldBytes > Self.mostFieldBytes else { return self }
        log.headCut(upload: upload, bytes: fieldBytes)
        return fitting
    }
}
