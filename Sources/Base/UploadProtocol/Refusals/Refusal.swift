// A request that the gateway itself answers with an error, as a value and as a problem document.
//
// The errors themselves are listed in ProtocolRefusals.swift and GatewayRefusals.swift. Invariant:
// the document's status, type and title follow RFC 9457: a typeless problem has the status phrase
// for its title.

package import HTTPTypes
package import SpoolgateTextFormats

/// A request the gateway refuses: a status and a problem document (RFC 9457).
package struct Refusal: Error, Sendable, Equatable {
    /// The status, 4xx or 5xx.
    package var status: HTTPResponse.Status
    /// What programs tell it by: words in lower case with hyphens, the same in every release; listed in
    /// spoolgate(8).
    package var code: String
    /// The problem type: the last part of an IANA problem type URI, or nil for `about:blank`.
    package var type: String?
    /// A short sentence that does not change from one occurrence to the next; for log lines.
    package var title: String
    /// What was wrong with this request and what to do about it, for the client's eyes.
    package var detail: String
    /// Extension members of the problem, integers (draft-12 §7).
    package var members: [Member] = []
    /// Whether `Upload-Limit` goes with it (draft-12 §4.1.4: refusals caused by a limit).
    package var tellsLimits = false
    /// Seconds for `Retry-After`, where waiting helps.
    package var retryAfter: Int?
    /// Further fields the status asks for: `Allow` with 405, `Accept-Patch` with 415.
    package var fields: HTTPFields = [:]
    /// What the answer says of the upload: `.complete` where the client must not resume because the
    /// upload was sent on and its outcome is not known (draft-12 §4.1.2).
    package var completeness = Completeness.incomplete
    /// Whether it refuses an ordinary request, and so goes without the protocol's fields.
    package var isOrdinary = false
    /// Whether it says nothing of the upload but to come back.
    ///
    /// Clients take a complete answer for the upload's, so a request on an upload that exists is broken off instead.
    package var isOnlyLater = false

    /// One extension member of a problem document.
    package struct Member: Sendable, Equatable {
        /// The member's name.
        package var name: String
        /// Its value.
        package var value: Int64
    }

    /// The same refusal with another status.
    func told(as status: HTTPResponse.Status) -> Refusal {
        var refusal = self
        refusal.status = status
        return refusal
    }

    /// The same refusal of an ordinary request: without the protocol's fields.
    package var ofOrdinaryRequest: Refusal {
        var refusal = self
        refusal.isOrdinary = true
        return refusal
    }

    /// The problem document (RFC 9457 §3): `type` and the members where there are any, and `code`.
    ///
    /// Without a type the title is that of the status (§4.2.1), if that has one here.
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

    /// The answer to an ordinary request: the document and nothing of the upload protocol.
    ///
    /// A request that speaks the protocol gets `ResponseBuilder.refused`.
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
