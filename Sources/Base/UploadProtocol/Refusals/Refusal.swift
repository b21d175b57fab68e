// A request that the gateway itself refuses, as a value and as a problem document.
//
// The other files of this folder define the refusals.

package import HTTPTypes
package import SpoolgateTextFormats

/// A refusal of a request: a status and a problem document (RFC 9457).
package struct Refusal: Error, Sendable, Equatable {
    /// The status, 4xx or 5xx.
    package var status: HTTPResponse.Status
    /// The identifier for programs: lower-case words and hyphens, stable across releases; listed in spoolgate(8).
    package var code: String
    /// The last part of an IANA problem type URI, or nil for `about:blank`.
    package var type: String?
    /// A short phrase, the same for every occurrence; also used in log lines.
    package var title: String
    /// The fault of this request and the remedy, for the client.
    package var detail: String
    /// Additional members of the problem document, with integers as values (draft-12 §7).
    package var members: [Member] = []
    /// Whether the response includes `Upload-Limit`, because a limit caused the refusal (draft-12 §4.1.4).
    package var reportsLimits = false
    /// The seconds in `Retry-After`; nil if waiting does not help.
    package var retryAfter: Int?
    /// Fields that the status requires: `Allow` with 405, `Accept-Patch` with 415.
    package var fields: HTTPFields = [:]
    /// The completeness in the response: `.complete` if the client must not resume (draft-12 §4.1.2).
    package var completeness = Completeness.incomplete
    /// Whether an ordinary request is refused, so that the response has none of the protocol's fields.
    package var isOrdinary = false
    /// Whether the refusal only tells the client to retry later.
    ///
    /// Clients take any complete response to be the final one, so for an existing upload the connection is closed
    /// instead.
    package var isOnlyLater = false

    /// An additional member of a problem document.
    package struct Member: Sendable, Equatable {
        package var name: String
        package var value: Int64
    }

    func with(status: HTTPResponse.Status) -> Refusal {
        var refusal = self
        refusal.status = status
        return refusal
    }

    /// A copy for an ordinary request, without the protocol's fields.
    package var ofOrdinaryRequest: Refusal {
        var refusal = self
        refusal.isOrdinary = true
        return refusal
    }

    /// The problem document (RFC 9457 §3), with `code` and, if present, `type` and additional members.
    ///
    /// Without a type, the title is the status phrase, if there is one (§4.2.1).
    package var document: JSON {
        var members: [(name: String, value: JSON)] = []
        if let type {
            members.append(
                ("type", .string("https://iana.org/assignments/http-problem-types#\(type)"))
            )
        }
        let phrase = status.reasonPhrase
        members.append(("title", .string(type == nil && !phrase.isEmpty ? phrase : title)))
        members.append(("status", .integer(Int64(status.code))))
        members.append(("detail", .string(detail)))
        members.append(("code", .string(code)))
        for member in self.members {
            members.append((member.name, .integer(member.value)))
        }
        return .object(members)
    }

    /// The response to an ordinary request: the document, without the protocol's fields.
    ///
    /// `ResponseBuilder.refused` builds the response to a request of the protocol.
    package var response: Response {
        var fields: HTTPFields = [
            .contentType: "application/problem+json", .cacheControl: "no-store",
        ]
        fields.append(contentsOf: self.fields)
        if let retryAfter {
            fields.append(HTTPField(name: .retryAfter, value: String(retryAfter)))
        }
        let content = Array(document.text.utf8) + [UInt8(ascii: "\n")]
        return Response(ResponseHead(status: status, fields: fields), content: content)
    }
}
