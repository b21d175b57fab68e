// An upstream that keeps each upload itself, as a file or an object, and does not speak HTTP with clients.
//
// The folders Directory and Bucket have one kind each: its address in the settings, its settings, its delivery and its
// checks. Another kind is a folder with such a type, and a row in `UpstreamTarget.stores`.

import HTTPTypes
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// One kind of store.
package protocol Store: Sendable, CustomStringConvertible {
    /// The scheme in the setting `upstream`, such as `s3`.
    static var scheme: String { get }
    /// The kind in messages about the settings, such as `an s3:`.
    static var kind: String { get }

    /// Parses the text of the setting `upstream` after the scheme and its colon.
    init(address: Substring) throws(UpstreamTargetError)

    /// The setting `upstream`, in one form for every spelling.
    var text: String { get }
    /// The place that this store shares with others, in one form for every spelling.
    var place: String { get }
    /// The store in findings, such as `directory /srv/incoming`.
    var description: String { get }
    /// The directory that the daemon's user must be able to change; nil if the store is not a directory.
    var directory: String? { get }
    /// This store if it is on a server; otherwise nil.
    var onServer: (any ServerStore)? { get }

    /// Prepares attempts with these settings.
    func access(_ settings: UpstreamSettings) -> any UpstreamAccess
}

extension Store {
    package var place: String { text }
    package var directory: String? { nil }
    package var onServer: (any ServerStore)? { nil }
}

/// A store on a server, which the gateway uses with a key.
///
/// Invariant: no object is ever replaced, so that every attempt may be repeated.
package protocol ServerStore: Store {
    /// The name of the setting with the place of the key.
    static var keySetting: String { get }
    /// The maximum size of an object in bytes.
    static var largestObject: Int64 { get }

    /// The URL of the server.
    var endpoint: String { get }
    /// The store in reasons, without the start of its keys.
    var shortText: String { get }

    /// The place of the key; nil if the settings name none.
    func credentials(in settings: UpstreamSettings) -> StoreCredentials?
    /// The error in the key, read now, in one sentence; nil if the key is valid.
    func keyFault(_ settings: UpstreamSettings) -> String?
    /// Sends the server a request without an upload, and returns the error that would prevent uploads.
    ///
    /// - Returns: one sentence that ends with the fix; nil if no error was found.
    func fault(_ settings: UpstreamSettings) -> String?
}

extension ServerStore {
    package var place: String { UpstreamLocation(base: endpoint).origin }
    package var onServer: (any ServerStore)? { self }
}

/// The place of a store's key.
package enum StoreCredentials: Sendable, Equatable {
    /// A file.
    case file(String)
    /// The environment variables of the store's own tools.
    case environment

    package var file: String? { if case .file(let path) = self { path } else { nil } }
}

extension Response {
    /// The response 201 for a stored upload, with a JSON object of its ID, file name and length.
    static func stored(_ upload: UploadID, name: String, length: Int64) -> Response {
        let response = JSON.object([
            ("id", .string("\(upload)")), ("name", .string(name)), ("length", .integer(length)),
        ])
        return Response(
            ResponseHead(status: .created, fields: [.contentType: "application/json"]),
            content: Array((response.text + "\n").utf8)
        )
    }

    /// The response 405 to a request that is not an upload.
    static let onlyUploads = Response(
        ResponseHead(
            status: .methodNotAllowed,
            fields: [
                .allow: "POST, PUT, PATCH", .contentType: "application/problem+json",
            ]
        ),
        content: Array(
            (JSON.object([
                ("title", .string("Only uploads are accepted")), ("status", .integer(405)),
                ("detail", .string("Send content with POST, PUT or PATCH.")),
            ]).text + "\n").utf8
        )
    )

    /// Passes the response to `sink`; if that fails, the outcome's reason begins with `purpose`.
    func give(
        to sink: any ResponseSink,
        respondingTo request: UpstreamRequest,
        purpose: String
    ) -> AttemptOutcome {
        do {
            try sink.receive(head: head, contentLength: Int64(content.count))
            if request.method != .head { try sink.receive(content: content.span.bytes) }
            return .responded
        } catch {
            return .undelivered(reason: "\(purpose): cannot relay the response: \(error)")
        }
    }
}
