// A spool directory of a test, and its state as seen from outside.
//
// It reads the files instead of calling the spool, so that a test compares the two.

import Foundation
import HTTPTypes
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateTextFormats
import SpoolgateUploadProtocol

@testable import SpoolgateSpool

final class TemporarySpool {
    /// The spool's path; initially missing.
    let path: String

    /// Chooses a path; `isInMemory` false: on the disk of temporary files in any case.
    init(isInMemory: Bool = true) {
        let name = "spoolgate-test-\(UInt64.random(in: 0...(.max)))"
        // In memory if possible: survival of a power failure is judged by the disk calls, not by the disk.
        path = "\(isInMemory ? ScratchDirectory.memory : NSTemporaryDirectory())/\(name)"
    }

    /// Takes over an existing spool.
    init(existing path: String) { self.path = path }

    deinit { try? FileManager.default.removeItem(atPath: path) }

    /// The number of power failures; each one changes the boot id.
    private var cuts = 0

    /// Opens it as another process would, with its own table of locks.
    ///
    /// With a `node`, it is opened as a spool that several hosts share.
    func open(
        _ disk: Disk = Disk(),
        reserve: Int64 = 0,
        quota: Int64? = nil,
        clock: SystemClock = SystemClock(),
        node: String? = nil
    ) throws -> Spool {
        try Spool(
            directory: path,
            reserve: reserve,
            quota: quota,
            disk: disk,
            clock: clock,
            node: node,
            writer: node == nil ? "boot\(cuts)" : nil
        )
    }

    /// Makes later openers believe that the machine has been restarted.
    func cutPower() { cuts += 1 }

    /// The path of an upload's record, in corrupt/ if it was moved there.
    func record(_ id: UploadID) -> String {
        let corrupt = "\(path)/corrupt/\(id)"
        let isCorrupt = FileManager.default.fileExists(atPath: corrupt)
        return isCorrupt ? corrupt : "\(path)/uploads/\(id.description.prefix(1))/\(id)"
    }

    /// The path of the content's file.
    func data(_ id: UploadID) -> String {
        "\(path)/uploads/\(id.description.prefix(1))/\(id).data"
    }

    /// The newest state in an upload's record; nil if none can be read.
    func state(of id: UploadID) -> RecordState? {
        guard let bytes = FileManager.default.contents(atPath: record(id)),
            case .state(let state, _, _) = RecordSlots.read(Array(bytes), of: id)
        else { return nil }
        return state
    }

    /// The upload's queue according to its files; nil if it has no record.
    func queue(of id: UploadID) -> Queue? {
        let path = record(id)
        guard FileManager.default.fileExists(atPath: path) else { return nil }
        return path.contains("/corrupt/") ? .corrupt : state(of: id)?.queue
    }

    /// The times in an upload's queue names.
    func queueTimes(of id: UploadID) -> [WallTime] {
        let names = (try? FileManager.default.contentsOfDirectory(atPath: "\(path)/queue")) ?? []
        return names.compactMap { QueueName($0) }.filter { $0.id == id }.map(\.time)
    }

    /// Moves an upload to corrupt/.
    func setAside(_ id: UploadID) throws {
        try FileManager.default.moveItem(atPath: record(id), toPath: "\(path)/corrupt/\(id)")
    }

    /// The content of the data file; nil if it is missing.
    func content(of id: UploadID) -> [UInt8]? {
        FileManager.default.contents(atPath: data(id)).map { Array($0) }
    }

    func edit(_ path: String, _ change: (inout Data) -> Void) throws {
        let url = URL(filePath: path)
        var bytes = try Data(contentsOf: url)
        change(&bytes)
        let file = try FileHandle(forWritingTo: url)
        try file.truncate(atOffset: 0)
        try file.write(contentsOf: bytes)
    }
}

extension UploadID {
    /// An identity for a test.
    static func random() -> UploadID {
        UploadID(high: .random(in: 0...(.max)), low: .random(in: 0...(.max)))
    }
}

extension UploadCreation {
    /// A creation for a test.
    static func sample(
        _ id: UploadID = .random(),
        repeatable: Bool = true,
        owner: ExactText? = nil,
        fields: HTTPFields = [.contentType: "text/plain"],
        address: String? = "192.0.2.1"
    ) -> UploadCreation {
        UploadCreation(
            id: id,
            route: "default",
            owner: owner,
            head: RequestHead(method: .post, target: "/files?x=1", fields: fields),
            resourcePath: "/files/\(id)",
            remoteAddress: address,
            scheme: "https",
            created: WallTime(seconds: 1_795_000_000),
            isRepeatable: repeatable
        )
    }
}

extension HTTPFields {
    /// The fields of a part of another upload.
    static let part: HTTPFields = [.tusResumable: Tus.version, .uploadConcat: "partial"]
    /// The fields of an upload that is concatenated from parts.
    static let joined: HTTPFields = [.tusResumable: Tus.version, .uploadConcat: "final;/a /b"]
}

extension StoredResponse {
    /// A response for a test.
    static let sample = StoredResponse(
        head: ResponseHead(
            status: .init(code: 201, reasonPhrase: "Made"),
            fields: [.location: "/stored/1"]
        ),
        content: Array("stored\n".utf8)
    )
}

extension Upload {
    func append(_ text: String) throws(SpoolError) {
        let bytes = Array(text.utf8)
        try append(bytes.span.bytes)
    }

    /// The whole content.
    func content() throws -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: Int(state.offset) + 10)
        var failure: SpoolError?
        let count = bytes.withUnsafeMutableBytes { buffer in
            do throws(SpoolError) { return try read(into: buffer, at: 0) } catch {
                failure = error
                return 0
            }
        }
        if let failure { throw failure }
        return Array(bytes[..<count])
    }
}

extension Spool {
    /// Locks with a deadline that only a bug exceeds.
    func lock(_ id: UploadID, seconds: Int = 60) throws(SpoolError) -> Upload? {
        try lock(id, until: .after(.seconds(seconds)), requestRelease: {})
    }

    func summaries() throws -> [UploadSummary] {
        var all: [UploadSummary] = []
        try forEachUpload { all.append($0) }
        return all
    }
}
