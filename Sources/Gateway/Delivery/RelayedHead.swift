// A response's head on its way to a client, held to what web servers in front take.

package import SpoolgateJournal
package import SpoolgateUploadProtocol

extension ResponseHead {
    /// The head as it can be relayed, with a log line where that is not all of it.
    package func fitting(telling log: Log, upload: UploadID? = nil) -> ResponseHead {
        guard fieldBytes > Self.mostFieldBytes else { return self }
        log.headCut(upload: upload, bytes: fieldBytes)
        return fitting
    }
}
