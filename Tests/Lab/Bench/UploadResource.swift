// A client's upload resource: its path, offset and completion.

import SpoolgateTestSupport

final class UploadResource {
    let path: String
    private let connection: Connection

    /// Reads the location in the response to a creation.
    init(_ creation: WireClient.Answer, _ connection: Connection) throws {
        guard let path = creation.locationPath else {
            throw BenchFailure("the response \(creation.status) to a creation has no Location")
        }
        self.path = path
        self.connection = connection
    }

    /// Creates an incomplete upload without content.
    static func create(_ target: String, _ connection: Connection) throws
        -> UploadResource
    {
        let response = try connection.exchange(
            Request("POST", target, [("Upload-Complete", "?0")], length: 0),
            expecting: 201
        )
        return try UploadResource(response, connection)
    }

    func append(
        _ length: Int64,
        at offset: Int64,
        last: Bool
    ) throws -> WireClient.Answer {
        let request = Request(
            "PATCH",
            path,
            [
                ("Upload-Offset", "\(offset)"), ("Upload-Complete", last ? "?1" : "?0"),
                ("Content-Type", "application/partial-upload"),
            ],
            length: length
        )
        let response =
            try last
            ? connection.exchange(request, expecting: 200, 201)
            : connection.exchange(request, expecting: 204)
        if !last, let told = response.number("upload-offset"), told != offset + length {
            throw BenchFailure("a part of \(length) bytes at \(offset) received \(told)")
        }
        return response
    }

    func requireOffset(_ offset: Int64) throws {
        let response = try connection.exchange(Request("HEAD", path), expecting: 204)
        guard response.number("upload-offset") == offset else {
            throw BenchFailure(
                "HEAD \(path) returned offset \(response["upload-offset"] ?? "none"), "
                    + "\(offset) bytes were accepted"
            )
        }
    }

    func cancel() throws {
        try connection.exchange(Request("DELETE", path), expecting: 204)
    }
}
