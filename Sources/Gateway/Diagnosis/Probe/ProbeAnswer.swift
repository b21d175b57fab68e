// An answer as those who judge it see it: whose it is, and what it says.
//
// Pure. The gateway's own answers are problem documents with a code (spoolgate(8)); nginx's are pages in HTML.

import HTTPTypes
import SpoolgateCurl
import SpoolgateUploadProtocol

/// One answer, or why there is none.
struct ProbeAnswer: Sendable, Equatable {
    /// The head; nil: there is no answer.
    var head: ResponseHead?
    /// The first bytes of its content.
    var content = ""
    /// Why there is no answer.
    var fault: ClientFault?
    /// The statuses of the interim responses before it.
    var interim: [Int] = []
}

extension ProbeAnswer {
    /// What became of a request that is over.
    init(_ transfer: ClientTransfer) {
        self.init(
            head: transfer.head,
            content: String(decoding: transfer.content, as: UTF8.self),
            fault: transfer.fault,
            interim: transfer.interim.map(\.head.status.code)
        )
    }

    /// The status; 0 without an answer.
    var status: Int { head?.status.code ?? 0 }

    /// The value of a field, the first one.
    subscript(name: HTTPField.Name) -> String? {
        head?.fields.first { $0.name == name }?.value
    }

    /// Whether it is a problem document (RFC 9457).
    var isProblem: Bool {
        self[.contentType]?.hasPrefix("application/problem+json") ?? false
    }

    /// The code in the gateway's problem document; nil where it is none.
    var code: String? { isProblem ? member("code") : nil }

    /// The sentence in the problem document; nil where there is none.
    var detail: String? { isProblem ? member("detail") : nil }

    /// Who seems to have made it.
    var author: String {
        if code != nil { return "the gateway" }
        if content.contains("<center>nginx") { return "nginx, not the gateway" }
        return "another server, not the gateway"
    }

    /// Whether a web server on the way takes no content of that length.
    var isTooLarge: Bool { status == 413 && code == nil }

    /// The offset it tells.
    var offset: Int64? {
        head.flatMap { StructuredField.integer(.uploadOffset, in: $0.fields) }
    }

    /// `413 from nginx, not the gateway`, or why there is no answer.
    var description: String {
        guard let head else {
            return "no response (\(fault?.reason ?? "the connection was closed"))"
        }
        let reason = detail.map { ": \($0)" } ?? ""
        return "\(head.status.code) from \(author)\(reason)"
    }

    /// A string member of a document that the gateway wrote: one line, without spaces between its tokens.
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
