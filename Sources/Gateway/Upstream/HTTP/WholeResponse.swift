// A response of a service beside the gateway, taken whole into memory up to a cap.
//
// Invariant: content over the cap is dropped whole, never cut: half of it could mean something else.

import HTTPTypes
import SpoolgatePosix
package import SpoolgateUploadProtocol

/// Takes a response whole.
///
/// One thread.
package final class WholeResponse: ResponseSink {
    /// The final head; nil before it came.
    package private(set) var head: ResponseHead?
    /// Its content, up to the cap.
    private(set) var content: [UInt8] = []
    private var isOverCap = false
    private let cap: Int
    private let deadline: Deadline
    private let meanwhile: () -> Void

    /// It took longer than it may.
    private struct TooSlow: Error, CustomStringConvertible {
        let description = "the response took too long"
    }

    /// Takes a response of up to `cap` bytes of content until `timeout` is over; `meanwhile` is called
    /// at least once a second once there is a connection.
    package init(cap: Int, timeout: Duration, meanwhile: @escaping () -> Void = {}) {
        self.cap = cap
        self.meanwhile = meanwhile
        // Connecting, asking and answering may each take that long.
        deadline = .after(timeout * 3)
    }

    /// The response as a client may see it; nil before its head came.
    package var response: Response? {
        guard let head else { return nil }
        var fields = UpstreamFields.relayed(head.fields)
        if isOverCap {
            for name in [HTTPField.Name.contentType, .contentEncoding] { fields[name] = nil }
        }
        return Response(ResponseHead(status: head.status, fields: fields), content: content)
    }

    /// Calls what it was made with.
    package func onProgress() { meanwhile() }

    /// Drops it.
    package func receive(interim head: ResponseHead) {}

    /// Keeps it.
    package func receive(head: ResponseHead, contentLength: Int64?) { self.head = head }

    /// Keeps content up to the cap; throws once it takes too long.
    package func receive(content part: RawSpan) throws {
        guard !deadline.hasPassed else { throw TooSlow() }
        if content.count + part.byteCount > cap {
            isOverCap = true
            content = []
        }
        if !isOverCap { part.withUnsafeBytes { content.append(contentsOf: $0) } }
    }
}
