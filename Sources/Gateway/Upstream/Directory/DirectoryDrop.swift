// The directory upstream. Consumers find each upload in two files:
//
//   <id>-<name>        the content, mode 0640
//   <id>-<name>.json   the record, one JSON object on one line; created last
//
// spoolgate.yaml(5) documents the members of a record. <id> is the upload's 26 characters, and <name> is the client's
// file name (`ClientFileName.stored`), which never ends in `.json`. Names that begin with a dot are incomplete files or
// leftovers of a crash.
//
// Invariant: a record exists only after its content is complete, and durable if the promise covers power failures.
// Storing an upload again results in the same two files.

import HTTPTypes
package import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// A directory as a store: each upload becomes a file, next to a JSON record.
///
/// The setting is `directory:/path`.
package struct DirectoryDrop: Store, UpstreamAccess {
    let path: String

    package static var scheme: String { "directory" }
    package static var kind: String { "a directory:" }
    package var text: String { "directory:\(path)" }
    package var description: String { "directory \(path)" }
    package var directory: String? { path }

    init(path: String) { self.path = path }

    /// Parses an absolute path.
    package init(address: Substring) throws(UpstreamTargetError) {
        path = try UpstreamTarget.absolute(address, scheme: Self.scheme, example: "/srv/incoming")
    }

    /// Opens nothing; each attempt opens the directory.
    package func access(_ settings: UpstreamSettings) -> any UpstreamAccess { self }

    /// Stores an upload; the sink receives 201 when it is stored, or 405 if the request is not an upload.
    ///
    /// On return, both files are durable if the promise covers power failures.
    package func attempt(_ request: UpstreamRequest, sink: any ResponseSink) -> AttemptOutcome {
        let purpose = request.purpose(at: text)
        do {
            var response = Response.onlyUploads
            if let upload = request.upload {
                let facts = request.knownFacts
                response = try facts.name.storing { name in
                    try store(request, upload, facts, as: name, sink)
                }
            }
            return response.give(to: sink, respondingTo: request, purpose: purpose)
        } catch {
            let reason = "\(purpose): \(DropFiles.reason(of: error))"
            guard let error = error as? SystemError else { return .abandoned(reason: reason) }
            return error.isFull ? .noRoom(reason: reason) : .notReached(reason: reason)
        }
    }

    private func store(
        _ request: UpstreamRequest,
        _ upload: UploadID,
        _ facts: UploadFacts,
        as name: String,
        _ sink: any ResponseSink
    ) throws -> Response {
        let files = try DropFiles(path: path, survivesPowerCut: request.survivesPowerCut)
        let file = "\(upload)-\(name)"
        let length = try files.store(request.content, as: file, sink.onProgress)
        func object(_ pairs: [(key: String, value: String)]) -> JSON {
            .object(pairs.map { (name: $0.key, value: .string($0.value)) })
        }
        let record = JSON.object([
            ("id", .string("\(upload)")),
            ("name", .string(facts.name.stated)),
            ("file", .string(file)),
            ("method", .string(request.method.rawValue)),
            ("target", .string(request.target)),
            ("length", .integer(length)),
            ("content-type", .string(request.fields[.contentType])),
            ("content-encoding", .string(facts.coding)),
            ("owner", .string(facts.owner)),
            ("metadata", object(facts.metadata)),
            ("digest", object(facts.digests)),
            ("received", .string(WallTime.now.description)),
        ])
        do {
            try files.write(Array((record.text + "\n").utf8), as: "\(file).json")
        } catch {
            // Consumers never look for content without a record.
            files.removeContent(file, unlessNamedBy: "\(file).json")
            throw error
        }
        // One sync makes both names durable: they are in one directory, and journaling file systems keep the order
        // of changes.
        try files.sync()
        return .stored(upload, name: name, length: length)
    }
}

extension UpstreamTarget {
    /// A directory as a target.
    package static func directory(path: String) -> UpstreamTarget {
        .store(DirectoryDrop(path: path))
    }
}

extension DropFiles {
    /// Stores the content of an upload with mode 0640: as a hard link if possible, otherwise as a copy.
    ///
    /// If the file must survive a power failure, the content is durable on return, but the name only after `sync`.
    /// Calls `onProgress` repeatedly while copying.
    ///
    /// - Returns: the number of bytes stored.
    /// - Throws: `DropContentError` if the content cannot be read, otherwise `SystemError`.
    package func store(
        _ content: UpstreamContent,
        as name: String,
        _ onProgress: () -> Void
    ) throws -> Int64 {
        if case .file(let descriptor?, let length, _) = content,
            try link(descriptor, length: length, as: name)
        {
            return length
        }
        let source = ContentSource(content)
        return try write(as: name, expecting: source?.length) { buffer in
            onProgress()
            return try source?.read(into: buffer) ?? 0
        }
    }
}
