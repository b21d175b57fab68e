// The limit of web servers on the head of a relayed response.

package import SpoolgateJournal
package import SpoolgateUploadProtocol

extension ResponseHead {
    /// Returns the head without the fields that exceed the limit.
    ///
    /// Logs if fields were removed.
    package func fitting(telling log: Log, upload: UploadID? = nil) -> ResponseHead {
        guard fieldBytes > Self.mostFieldBytes else { return self }
        log.headCut(upload: upload, bytes: fieldBytes)
        return fitting
    }
}
