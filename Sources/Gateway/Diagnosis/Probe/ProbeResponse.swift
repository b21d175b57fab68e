// A response to a request of the probe.
//
// Pure. The gateway's own responses are problem documents with a code (spoolgate(8)); nginx's are HTML pages.

import HTTPTypes
import SpoolgateCurl
import SpoolgateUploadProtocol

/// A response, or the reason why none was received.
struct ProbeResponse: Sendable, Equatable {
    /// The response head; nil without a response.
    var head: ResponseHead?
    /// The first bytes of the content, as text.
    var content = ""
    /// The reason for a missing response; nil if unknown.
    var fault: ClientFault?
    /// The status codes of the interim responses, in order.
    var interim: [Int] = []
}

extension ProbeResponse {
    init(_ transfer: ClientTransfer) {
        self.init(
            head: transfer.head,
            content: String(decoding: transfer.content, as: UTF8.self),
            fault: transfer.fault,
            interim: transfer.interim.map(\.head.status.code)
        )
    }

    /// The status code; 0 without a response.
    var status: Int { head?.status.code ?? 0 }

    subscript(name: HTTPField.Name) -> String? {
        head?.fields.first { $0.name == name }?.value
    }

    /// Whether the content is a problem document (RFC 9457).
    var isProblem: Bool {
        self[.contentType]?.hasPrefix("application/problem+json") ?? false
    }

    /// The member `code` of the problem document, which only the gateway's responses have.
    var code: String? { isProblem ? member("code") : nil }

    var detail: String? { isProblem ? member("detail") : nil }

    /// The probable sender of the response.
    var author: String {
        if code != nil { return "the gateway" }
        if content.contains("<center>nginx") { return "nginx, not the gateway" }
        return "another server, not the gateway"
    }

    /// Whether a server other than the gateway refused the content as too large (413).
    var isTooLarge: Bool { status == 413 && code == nil }

    var offset: Int64? {
        head.flatMap { StructuredField.integer(.uploadOffset, in: $0.fields) }
    }

    /// A text for people, such as `413 from nginx, not the gateway`.
    var description: String {
        guard let head else {
            return "no response (\(fault?.reason ?? "the connection was closed"))"
        }
        let reason = detail.map { ": \($0)" } ?? ""
        return "\(head.status.code) from \(author)\(reason)"
    }

    /// Returns a string member of the problem document, which must be one line without spaces between tokens.
    private func member(_ name: String) -> String? {
        guard let start = content.firstRange(of: "\"\(name)\":\"")?.upperBound else { return nil }
        var value = ""
        var isEscaped = false
        for character in content[start...] {
            if isEscaped {
                value.append(character)
                isEscaped = false
            } else if character == "\\" {
                isEscaped = true
            } else if character == "\"" {
                return value
            } else {
                value.append(character)
            }
        }
        return nil
    }
}
