// The complete response of an auxiliary service, in memory.
//
// Invariant: content over the cap is dropped entirely, because a part could have another meaning.

import HTTPTypes
import SpoolgatePosix
package import SpoolgateUploadProtocol

/// Receives a complete response and keeps it in memory.
///
/// Not thread-safe.
package final class WholeResponse: ResponseSink {
    package private(set) var head: ResponseHead?
    private(set) var content: [UInt8] = []
    private var exceedsCap = false
    private let cap: Int
    private let deadline: Deadline
    private let meanwhile: () -> Void

    private struct TooSlow: Error, CustomStringConvertible {
        let description = "the response took too long"
    }

    /// Creates a receiver of up to `cap` bytes of content, for an exchange that may take up to three times `timeout`.
    ///
    /// `meanwhile` is called at least once a second after the connection is open.
    package init(cap: Int, timeout: Duration, meanwhile: @escaping () -> Void = {}) {
        self.cap = cap
        self.meanwhile = meanwhile
        // Connecting, sending the request and responding may each take as long as `timeout`.
        deadline = .after(timeout * 3)
    }

    /// The response with the fields that a client may receive; nil until the head is received.
    package var response: Response? {
        guard let head else { return nil }
        var fields = UpstreamFields.relayed(head.fields)
        if exceedsCap {
            for name in [HTTPField.Name.contentType, .contentEncoding] { fields[name] = nil }
        }
        return Response(ResponseHead(status: head.status, fields: fields), content: content)
    }

    /// Calls `meanwhile`.
    package func onProgress() { meanwhile() }

    /// Ignores an interim response.
    package func receive(interim head: ResponseHead) {}

    /// Stores the final head.
    package func receive(head: ResponseHead, contentLength: Int64?) { self.head = head }

    /// Stores content, or drops everything if it exceeds the cap; throws after the deadline.
    package func receive(content part: RawSpan) throws {
        guard !deadline.hasPassed else { throw TooSlow() }
        if content.count + part.byteCount > cap {
            exceedsCap = true
            content = []
        }
        if !exceedsCap { part.withUnsafeBytes { content.append(contentsOf: $0) } }
    }
}
