// Content that the web server writes into a file by itself: the lane.

package import SpoolgatePosix

/// The way on which a web server writes the content of one request into a file.
///
/// Used by the request's thread.
package protocol ContentLane: AnyObject {
    /// Whether the web server offers it for this request. Waits for the beginning of the content.
    ///
    /// The offer is declined by the next `Exchange.receive(into:)`, or taken up by `grant`.
    func isOffered() throws(ContentError) -> Bool

    /// Whether the web server has offered it for this request, whatever became of the offer.
    ///
    /// Known once content was read.
    var wasOffered: Bool { get }

    /// Takes the offer up: the web server adds content to the end of `file`, until it has told that it has
    /// ended; what `Exchange.receive(into:)` gives comes behind that.
    ///
    /// - Parameters:
    ///   - file: open for adding alone; closed here.
    ///   - offset: its size.
    ///   - limit: how much may be written.
    /// - Throws: where the web server is gone.
    func grant(_ file: consuming Descriptor, at offset: Int64, _ limit: LaneLimit)
        throws(ContentError)

    /// Lets the web server write more, `limit.count` bytes in all.
    func widen(_ limit: LaneLimit) throws(ContentError)

    /// Has the web server write no more: it closes the file; what it had not written is lost.
    func stop()

    /// Waits for what the web server says of what it writes, until it has ended.
    ///
    /// - Returns: nil if the wait was ended by the alarm (`Exchange.setAlarm`).
    /// - Throws: `ContentError`, after all reports that came before it; after `.stalled` it can be asked
    ///   again.
    func receiveReport() throws(ContentError) -> LaneReport?
}

/// How much content a web server may write into a file by itself.
package struct LaneLimit: Sendable, Equatable {
    /// Bytes in all.
    package var count: Int64
    /// Whether what goes on behind them comes by `receive(into:)`; else the web server waits for a higher limit.
    package var restFollows: Bool

    /// Makes a limit.
    package init(count: Int64, restFollows: Bool) {
        (self.count, self.restFollows) = (count, restFollows)
    }
}

/// What a web server says of content that it writes into a file by itself.
package enum LaneReport: Sendable, Equatable {
    /// So many bytes are written.
    case written(Int64)
    /// It has closed the file, with so many bytes written; `errno` is why it could not write more, or 0.
    case ended(Int64, errno: Int32)

    /// Bytes that are written.
    package var count: Int64 {
        switch self {
        case .written(let count), .ended(let count, _): count
        }
    }
}
