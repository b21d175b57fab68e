// Reads one response and passes it to the sink.
//
// Invariant: the sink receives at most one final head, and every head only when it is complete.

import HTTPTypes
import SpoolgateCurl
import SpoolgateUploadProtocol

/// Reads one response; a class, because a change to a structure would need a check of exclusive access at each use.
///
/// If a method returns an outcome, the attempt must end with that outcome.
final class ResponseReading {
    private let method: HTTPRequest.Method
    private let reasons: AttemptReasons
    private let sink: any ResponseSink
    private var reader = ResponseHeadReader()
    /// The number of complete heads received, including those of interim responses.
    private(set) var headCount = 0
    private(set) var hasFinalHead = false
    /// Whether the final head's status is 400 or above.
    private(set) var isRefusal = false
    /// Whether the final head offers or confirms credentials that authenticate the connection.
    private(set) var authenticatesConnection = false
    /// The target of an intercepted redirect; nil for any other response.
    ///
    /// The sink does not receive the redirect.
    private(set) var redirect: String?
    /// The number of content bytes still expected; nil if only libcurl can detect where the content ends.
    private var remaining: Int64?

    init(_ reasons: AttemptReasons, to sink: any ResponseSink) {
        method = reasons.request.method
        self.reasons = reasons
        self.sink = sink
    }

    var isWhole: Bool { hasFinalHead && remaining == 0 }

    /// Processes one line of a head.
    ///
    /// Drops lines of the trailer section.
    func takeHeadLine(_ line: UnsafeRawBufferPointer) -> AttemptOutcome? {
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

    private func take(
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
            isRefusal = head.status.code >= 400
            authenticatesConnection = head.fields.authenticateConnection
            remaining = contentToCome(head, contentLength)
            if head.status.code == 407 { return .notForwarded(reason: reasons.unforwarded) }
            redirect = redirect(in: head)
            if redirect != nil { return nil }
            // A response to HEAD contains the length of the response to GET (RFC 9110 §9.3.2).
            let stated = Self.hasNoContent(head) ? nil : contentLength
            return pass { try sink.receive(head: head, contentLength: stated) }
        }
    }

    private func redirect(in head: ResponseHead) -> String? {
        let request = reasons.request
        guard request.interceptsRedirects,
            Redirection.repeatsRequest(status: head.status.code, method: request.method),
            let reference = head.fields[.location],
            let redirection = Redirection(
                head,
                from: request.target,
                hosts: [],
                reasons.settings.redirects
            ), redirection.kind != .login,
            // The operator says that the application has accepted the upload.
            !(redirection.isListed && head.status.code < 304)
        else { return nil }
        return Redirection.target(
            of: reference,
            from: request.target,
            at: reasons.location,
            statedHost: request.fields[.host]
        )
    }

    func takeContent(_ content: UnsafeRawBufferPointer) -> AttemptOutcome? {
        remaining = remaining.map { $0 - Int64(content.count) }
        if redirect != nil { return nil }
        return pass { try sink.receive(content: content.bytes) }
    }

    /// Processes `bytes` if they contain the whole rest of the response; otherwise does nothing.
    func takeWhole(_ bytes: [UInt8]) -> AttemptOutcome? {
        guard let (head, length) = wholeResponse(bytes) else { return nil }
        for line in bytes[..<head].split(separator: 0x0a, omittingEmptySubsequences: false) {
            let line = Array(line)
            if let outcome = line.withUnsafeBytes({ takeHeadLine($0) }) { return outcome }
            if hasFinalHead { break }
        }
        guard length > 0 else { return nil }
        return bytes[head..<(head + length)].withUnsafeBytes { takeContent($0) }
    }

    /// The end of the final head in `bytes`, and the length of its content; nil if the response is incomplete.
    private func wholeResponse(_ bytes: [UInt8]) -> (head: Int, length: Int)? {
        var trial = reader
        var start = 0
        while let end = bytes[start...].firstIndex(of: 0x0a) {
            let line = bytes[start...end]
            start = end + 1
            // Invalid bytes are not a response.
            guard let step = try? line.withUnsafeBytes({ try trial.take($0) }) else { return nil }
            guard case .head(let head, let length) = step, head.status.code >= 200 else { continue }
            guard let left = contentToCome(head, length), left <= bytes.count - start else {
                return nil
            }
            return (start, Int(left))
        }
        return nil
    }

    private func contentToCome(_ head: ResponseHead, _ stated: Int64?) -> Int64? {
        Self.hasNoContent(head) || method == .head ? 0 : stated
    }

    private static func hasNoContent(_ head: ResponseHead) -> Bool {
        head.status.code == 204 || head.status.code == 304
    }

    private func pass(_ body: () throws -> Void) -> AttemptOutcome? {
        do {
            try body()
            return nil
        } catch {
            return .undelivered(
                reason: "\(reasons.purpose): cannot relay the response: \(error)"
            )
        }
    }
}

// MARK: Authenticated connections

// Authentication of a connection instead of a request: NTLM, Negotiate and Kerberos.
//
// A server with such a scheme attributes every further request on the connection to the client that logged in (RFC 4559
// §6, [MS-NTHT] §1.3). Many clients share the gateway's connections, so the gateway closes a connection after an
// exchange that used or offered such a scheme. A login needs several requests on one connection, and therefore never
// succeeds.
//
// Invariant: a scheme is found at any position of a list and in any letter case, but not inside a quoted string.

extension HTTPFields {
    var authenticateConnection: Bool {
        for field in self {
            // The first letter excludes most fields of a message.
            switch field.name.canonicalName.utf8.first {
            case UInt8(ascii: "a"), UInt8(ascii: "p"), UInt8(ascii: "w"):
                if field.authenticatesConnection { return true }
            default: break
            }
        }
        return false
    }
}

extension HTTPField {
    var authenticatesConnection: Bool {
        switch name.canonicalName {
        case "authorization", "www-authenticate", "proxy-authenticate", "authentication-info",
            "proxy-authentication-info":
            Self.namesConnectionScheme(value)
        // Microsoft's servers declare such authentication in this field.
        case "persistent-auth": value.lowercased().contains("true")
        default: false
        }
    }

    private static let connectionSchemes = ["ntlm", "negotiate", "kerberos", "nego2"]

    /// Whether an element of a list begins with one of `connectionSchemes` (RFC 9110 §11.6.1).
    private static func namesConnectionScheme(_ value: String) -> Bool {
        var isQuoted = false
        var isEscaped = false
        var word: [UInt8]? = []
        for byte in value.utf8 {
            if isQuoted {
                isQuoted = isEscaped || byte != UInt8(ascii: "\"")
                isEscaped = !isEscaped && byte == UInt8(ascii: "\\")
                continue
            }
            switch byte {
            case UInt8(ascii: ","):
                if isConnectionScheme(word) { return true }
                word = []
            case UInt8(ascii: " "), UInt8(ascii: "\t"):
                if isConnectionScheme(word) { return true }
                // Only the first word of an element is a scheme.
                if word?.isEmpty == false { word = nil }
            case UInt8(ascii: "\""):
                isQuoted = true
                word = nil
            default: word?.append(byte)
            }
        }
        return isConnectionScheme(word)
    }

    private static func isConnectionScheme(_ word: [UInt8]?) -> Bool {
        guard let word, !word.isEmpty else { return false }
        return connectionSchemes.contains(String(decoding: word, as: UTF8.self).lowercased())
    }
}
