// The lane: the web server writes a request's content into a file itself, instead of sending it to the gateway.

package import SpoolgatePosix

/// Lets the web server write one request's content into a file by itself.
///
/// Used by the request's thread.
package protocol ContentLane: AnyObject {
    /// Waits until content arrives, and returns whether the web server offers to write it itself.
    ///
    /// The next call of `Exchange.receive(into:)` declines the offer; `grant` accepts it.
    func isOffered() throws(ContentError) -> Bool

    /// Whether the web server has made an offer, even if it was declined; known only after content was read.
    var wasOffered: Bool { get }

    /// Accepts the offer: the web server appends content to `file` until it reports the end.
    ///
    /// Afterwards, `Exchange.receive(into:)` returns the content that it did not write. The file must be open for
    /// appending only, and `offset` is its size in bytes; this function closes it.
    ///
    /// - Throws: `ContentError` if the web server has closed the connection.
    func grant(_ file: consuming Descriptor, at offset: Int64, _ limit: LaneLimit)
        throws(ContentError)

    /// Raises the limit; `limit.count` is the new total, not an increment.
    func widen(_ limit: LaneLimit) throws(ContentError)

    /// Asks the web server to stop writing and to close the file; content that it has not written is lost.
    func stop()

    /// Waits for the web server's next report; must not be called after `LaneReport.ended`.
    ///
    /// - Returns: nil if the alarm ended the wait (`Exchange.setAlarm`).
    /// - Throws: `ContentError`, after all earlier reports were returned; after `.stalled` the call can be repeated.
    func receiveReport() throws(ContentError) -> LaneReport?
}

/// The limit on the content that a web server may write into a file.
package struct LaneLimit: Sendable, Equatable {
    /// The maximum number of bytes that the web server may write in total.
    package var count: Int64
    /// True if the web server sends content beyond the limit to `receive(into:)`; false if it waits for a higher limit.
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
    /// The web server has closed the file after this total number of bytes; `errno` is 0 without an error.
    case ended(Int64, errno: Int32)

    package var count: Int64 {
        switch self {
        case .written(let count), .ended(let count, _): count
        }
    }
}
