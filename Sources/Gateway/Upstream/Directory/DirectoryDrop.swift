// The upstream that is a directory. The drop format, for whoever consumes it:
//
//   <id>-<name>        the upload's content, mode 0640
//   <id>-<name>.json   its record, one JSON object on one line; appears last
//
// spoolgate.yaml(5) says what consumers may rely on, and what a record has. <id> is the upload's 26 characters, <name> the
// client's file name as far as a file can have it (ClientFileName.stored); a content's name never ends in `.json`.
// Names that begin with a dot are drops under way, or what a crash left.
// The invariant: a record is there only while the content it names was whole, and on disk if it is to survive a
// power cut.
// Dropping the same upload again ends in the same two files, also if an earlier build has named them.

import HTTPTypes
package import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// Drops uploads into one directory.
struct DirectoryDrop {
    /// The directory; it must exist.
    let path: String

    /// Drops an upload and answers 201 once content, record and both names are on disk, or are there, where
    /// they need not survive a power cut; answers 405 to everything else.
    func attempt(_ request: UpstreamRequest, sink: any ResponseSink) -> AttemptOutcome {
        let purpose = request.purpose(at: "directory:\(path)")
        do {
            var response = Response.onlyUploads
            if let upload = request.upload {
                let facts = request.knownFacts
                response = try facts.name.storing { name in
                    try store(request, upload, facts, as: name, sink)
                }
            }
            return response.give(to: sink, answering: request, purpose: purpose)
        } catch let error as SystemError where error.isFull {
            return .noRoom(reason: "\(purpose): \(error); \(error.roomRemedy)")
        } catch let error as SystemError {
            return .notReached(
                reason:
                    "\(purpose): \(error); check that the directory exists and this user may write to it"
            )
        } catch let error as DropContentError {
            return .abandoned(
                reason: "\(purpose): cannot read the content: \(error.underlying)"
            )
        } catch {
            return .abandoned(reason: "\(purpose): \(error)")
        }
    }

    private func store(
        _ request: UpstreamRequest,
        _ upload: UploadID,
        _ facts: UploadFacts,
        as newName: String,
        _ sink: any ResponseSink
    ) throws -> Response {
        let files = try DropFiles(path: path, survivesPowerCut: request.survivesPowerCut)
        var name = newName
        let former = facts.name.formerlyStored
        if former != name, files.has("\(upload)-\(former)") { name = former }
        let file = "\(upload)-\(name)"
        let length = try files.store(request.content, as: file, sink.onProgress)
        func object(_ pairs: [(key: String, value: String)]) -> JSON {
            .object(pairs.map { (name: $0.key, value: .string($0.value)) })
        }
        let record = JSON.object([
            ("id", .string("\(upload)")),
            ("name", .string(facts.name.told)),
            ("file", .string(file)),
            ("method", .string(request.method.rawValue)),
            ("target", .string(request.target)),
            ("length", .integer(length)),
            ("content-type", request.fields[.contentType].map { .string($0) } ?? .null),
            ("content-encoding", facts.coding.map { .string($0) } ?? .null),
            ("owner", facts.owner.map { .string($0) } ?? .null),
            ("metadata", object(facts.metadata)),
            ("digest", object(facts.digests)),
            ("received", .string(WallTime.now.description)),
        ])
        do {
            try files.write(Array((record.text + "\n").utf8), as: "\(file).json")
        } catch {
            // Nobody would ever look for content without a record.
            files.removeContent(file, unlessNamedBy: "\(file).json")
            throw error
        }
        // One sync is enough for both names: they are of one directory, and file systems with a
        // journal do not keep a later change without an earlier one.
        try files.sync()
        return .stored(upload, name: name, length: length)
    }
}

extension DropFiles {
    /// Puts an upload's content there, by a hard link where that can be, else by a copy; mode 0640, on disk.
    ///
    /// - Parameters:
    ///   - content: what is stored.
    ///   - name: the file's name.
    ///   - onProgress: called between two parts of a copy.
    /// - Returns: bytes of content.
    /// - Throws: `DropContentError` where the content cannot be read, else `SystemError`.
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
