// The lane: the web server writes a request's content into a file itself.

package import SpoolgatePosix

/// Lets the web server write one request's content into a file by itself.
///
/// Used by the request's thread.
package protocol ContentLane: AnyObject {
    /// Waits until content arrives, and returns whether the web server offers to write the content itself.
    ///
    /// `grant` accepts the offer. The next call of `Exchange.receive(into:)` declines it.
    func isOffered() throws(ContentError) -> Bool

    /// Whether the web server has made an offer, even one that was declined.
    ///
    /// Known only after content has been read.
    var wasOffered: Bool { get }

    /// Accepts the offer.
    ///
    /// The web server then appends content to `file` until it reports the end. Afterwards, `Exchange.receive(into:)`
    /// returns the content that the web server did not write. The file must be open for appending only, and `offset`
    /// must be its current size in bytes. This function closes the file.
    ///
    /// - Throws: `ContentError` if the web server has closed the connection.
    func grant(_ file: consuming Descriptor, at offset: Int64, _ limit: LaneLimit)
        throws(ContentError)

    /// Raises the limit.
    ///
    /// `limit.count` must be the new total, not an increment.
    func widen(_ limit: LaneLimit) throws(ContentError)

    /// Asks the web server to stop writing and to close the file.
    ///
    /// Content that the web server has not written is lost.
    func stop()

    /// Waits for the web server's next report; must not be called after `LaneReport.ended`.
    ///
    /// - Returns: the report, or nil if the alarm ended the wait (`Exchange.setAlarm`).
    /// - Throws: `ContentError`, once all earlier reports have been returned. After `.stalled`, the call can be
    ///   repeated.
    func receiveReport() throws(ContentError) -> LaneReport?
}

/// The limit on the content that a web server may write into a file.
package struct LaneLimit: Sendable, Equatable {
    /// The maximum number of bytes that the web server may write in total.
    package var count: Int64
    /// True if the web server sends content beyond the limit to `receive(into:)`; false if the web server waits for a
    /// higher limit.
    package var restFollows: Bool

    /// Creates a limit.
    package init(count: Int64, restFollows: Bool) {
        (self.count, self.restFollows) = (count, restFollows)
    }
}

/// A report of a web server that writes content into a file.
package enum LaneReport: Sendable, Equatable {
    /// The total number of bytes written so far.
    case written(Int64)
    /// The web server has closed the file after this total number of bytes; `errno` is 0 if no error occurred.
    case ended(Int64, errno: Int32)

    package var count: Int64 {
        switch self {
        case .written(let count), .ended(let count, _): count
        }
    }
}
