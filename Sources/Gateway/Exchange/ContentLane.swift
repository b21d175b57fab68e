// The lane: the web server writes content into a file itself.

package import SpoolgatePosix

/// The lane of one request.
///
/// Used by the request's thread.
package protocol ContentLane: AnyObject {
    /// Whether the web server offers the lane for this request; waits until content arrives.
    ///
    /// The next `Exchange.receive(into:)` declines the offer; `grant` accepts it.
    func isOffered() throws(ContentError) -> Bool

    /// Whether the web server has offered the lane for this request, accepted or not.
    ///
    /// Known after content was read.
    var wasOffered: Bool { get }

    /// Accepts the offer: the web server appends content to `file` until it reports the end.
    ///
    /// `Exchange.receive(into:)` then returns the content that follows.
    ///
    /// - Parameters:
    ///   - file: open for appending only; closed here.
    ///   - offset: the file's size.
    ///   - limit: how much the web server may write.
    /// - Throws: `ContentError` if the web server is gone.
    func grant(_ file: consuming Descriptor, at offset: Int64, _ limit: LaneLimit)
        throws(ContentError)

    /// Raises the limit; `limit.count` is the total number of bytes.
    func widen(_ limit: LaneLimit) throws(ContentError)

    /// Asks the web server to write no more and to close the file; bytes that it has not written are lost.
    func stop()

    /// Waits for the next report of the web server, until it has reported the end.
    ///
    /// - Returns: nil if the alarm ended the wait (`Exchange.setAlarm`).
    /// - Throws: `ContentError`, after all reports received before it; after `.stalled` the call can be repeated.
    func receiveReport() throws(ContentError) -> LaneReport?
}

/// The limit on the content that a web server may write into a file.
package struct LaneLimit: Sendable, Equatable {
    /// The total number of bytes.
    package var count: Int64
    /// Whether later bytes are sent to `receive(into:)`; otherwise the web server waits for a higher limit.
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
    /// The web server has closed the file: the bytes written, and the error that prevented more, or 0.
    case ended(Int64, errno: Int32)

    package var count: Int64 {
        switch self {
        case .written(let count), .ended(let count, _): count
        }
    }
}
