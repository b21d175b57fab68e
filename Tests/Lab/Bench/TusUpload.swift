// A tus 1.0 client's upload, at tusd or spoolgate.

import SpoolgateTestSupport

final class TusUpload {
    /// tusd's path, at nginx as well.
    static let base = "/tus/"

    let path: String
    private let connection: Connection

    /// Creates an upload of `length` bytes, `content` of them in the same request (creation-with-upload).
    init(
        at base: String = TusUpload.base,
        length: Int64,
        content: Int64 = 0,
        _ connection: Connection
    ) throws {
        var fields = TusUpload.fields + [("Upload-Length", "\(length)")]
        if content > 0 { fields.append(TusUpload.contentType) }
        let response = try connection.exchange(
            Request("POST", base, fields, length: content),
            expecting: 201
        )
        guard let path = response.locationPath else {
            throw BenchFailure("the response to a creation at \(base) has no Location")
        }
        guard content == 0 || response.number("upload-offset") == content else {
            throw BenchFailure(
                "\(base) took \(response["upload-offset"] ?? "no") of \(content) bytes"
            )
        }
        (self.path, self.connection) = (path, connection)
    }

    func append(_ length: Int64, at offset: Int64) throws {
        let fields = TusUpload.fields + [("Upload-Offset", "\(offset)"), TusUpload.contentType]
        let response = try connection.exchange(
            Request("PATCH", path, fields, length: length),
            expecting: 204
        )
        guard response.number("upload-offset") == offset + length else {
            throw BenchFailure(
                "\(path) tells \(response["upload-offset"] ?? "no offset") after \(length) bytes at "
                    + "\(offset)"
            )
        }
    }

    /// The fields of every request.
    static let fields = [(name: "Tus-Resumable", value: "1.0.0")]
    private static let contentType = (
        name: "Content-Type", value: "application/offset+octet-stream"
    )
}
