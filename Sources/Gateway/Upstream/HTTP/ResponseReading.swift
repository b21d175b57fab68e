// One response, from the first line of its first head to the last byte of its content, on its way to
// the sink.
//
// Interim responses, which of them are passed on, and how much content is still to come are known
// here; connections and deadlines are not. The invariant: the sink gets one final head at most, and
// nothing before a head was read whole.

import HTTPTypes
import SpoolgateCurl
import SpoolgateUploadProtocol

/// Reads one response and passes it on.
///
/// Where it returns an outcome, the attempt is over for that reason.
struct ResponseReading {
    private let method: HTTPRequest.Method
    private let reasons: AttemptReasons
    private let sink: any ResponseSink
    private var reader = ResponseHeadReader()
    /// Heads that came whole, interim ones included.
    private(set) var headCount = 0
    /// Whether the final head has come.
    private(set) var hasFinalHead = false
    /// Whether the final head offers or confirms credentials that hold for the connection.
    private(set) var authenticatesConnection = false
    /// The target that the final head redirects to, which the sink is not told; nil: it is told all.
    private(set) var redirect: String?
    /// Content still to come where the head told; nil: until libcurl says it is over.
    private var remaining: Int64?

    /// The response to the request that `reasons` are about.
    init(_ reasons: AttemptReasons, to sink: any ResponseSink) {
        method = reasons.request.method
        self.reasons = reasons
        self.sink = sink
    }

    /// Whether everything has come that the final head told.
    var isWhole: Bool { hasFinalHead && remaining == 0 }

    /// Takes one line of a head, or of the trailer section, which is dropped.
    mutating func takeHeadLine(_ line: UnsafeRawBufferPointer) -> AttemptOutcome? {
        guard !hasFinalHead else { return nil }
        do throws(ResponseHeadReader.Malformed) {
            guard case .head(let head, let length) = try reader.take(line) else { return nil }
            headCount += 1
            return try take(head, contentLength: length)
        } catch {
            return .indeterminate(
                reason:
                    "\(reasons.purpose): invalid response: \(error.reason); check which server listens there"
            )
        }
    }

    private mutating func take(
        _ head: ResponseHead,
        contentLength: Int64?
    ) throws(ResponseHeadReader.Malformed) -> AttemptOutcome? {
        switch head.status.code {
        case 100, 104:
            return nil
        case 101:
            throw .init(reason: "unrequested 101 (Switching Protocols)")
        case 102..<200:
            return pass { try sink.receive(interim: head) }
        default:
            hasFinalHead = true
            authenticatesConnection = head.fields.authenticateConnection
            remaining = contentToCome(head, contentLength)
            if head.status.code == 407 { return .notForwarded(reason: reasons.unforwarded) }
            redirect = redirect(in: head)
            if redirect != nil { return nil }
            // The answer to HEAD tells the length that GET would have (RFC 9110 §9.3.2).
            let told = Self.hasNoContent(head) ? nil : contentLength
            return pass { try sink.receive(head: head, contentLength: told) }
        }
    }

    /// The target to follow a redirect to; nil if the request does not ask for that, or it is none to follow.
    private func redirect(in head: ResponseHead) -> String? {
        let request = reasons.request
        guard request.interceptsRedirects,
            Redirection.repeatsRequest(status: head.status.code, method: request.method),
            let reference = head.fields[.location]
        else { return nil }
        return Redirection.target(
            of: reference,
            from: request.target,
            at: reasons.location,
            toldHost: request.fields[.host]
        )
    }

    /// Takes content of the final response.
    mutating func takeContent(_ content: UnsafeRawBufferPointer) -> AttemptOutcome? {
        remaining = remaining.map { $0 - Int64(content.count) }
        if redirect != nil { return nil }
        return pass { try sink.receive(content: content.bytes) }
    }

    /// Takes the rest of a response at once, if that ends it and its head tells so; else nothing.
    mutating func takeWhole(_ bytes: [UInt8]) -> AttemptOutcome? {
        guard let (head, length) = wholeResponse(bytes) else { return nil }
        for line in bytes[..<head].split(separator: 0x0a, omittingEmptySubsequences: false) {
            let line = Array(line)
            if let outcome = line.withUnsafeBytes({ takeHeadLine($0) }) { return outcome }
            if hasFinalHead { break }
        }
        guard length > 0 else { return nil }
        return bytes[head..<(head + length)].withUnsafeBytes { takeContent($0) }
    }

    /// Where the final head ends in `bytes` and how long the content behind it is; nil where they do
    /// not hold all of it.
    private func wholeResponse(_ bytes: [UInt8]) -> (head: Int, length: Int)? {
        var trial = reader
        var start = 0
        while let end = bytes[start...].firstIndex(of: 0x0a) {
            let line = bytes[start...end]
            start = end + 1
            // What is no response is no answer either.
            guard let step = try? line.withUnsafeBytes({ try trial.take($0) }) else { return nil }
            guard case .head(let head, let length) = step, head.status.code >= 200 else { continue }
            guard let left = contentToCome(head, length), left <= bytes.count - start else {
                return nil
            }
            return (start, Int(left))
        }
        return nil
    }

    private func contentToCome(_ head: ResponseHead, _ told: Int64?) -> Int64? {
        Self.hasNoContent(head) || method == .head ? 0 : told
    }

    private static func hasNoContent(_ head: ResponseHead) -> Bool {
        head.status.code == 204 || head.status.code == 304
    }

    private func pass(_ body: () throws -> Void) -> AttemptOutcome? {
        do {
            try body()
            return nil
        } catch {
            return .unheard(
                reason: "\(reasons.purpose): cannot relay the response: \(error)"
            )
        }
    }
}
