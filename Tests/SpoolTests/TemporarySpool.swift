// A test's spool directory, and its state read from the files, for comparison with the spool's.

import Foundation
import HTTPTypes
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateTextFormats
import SpoolgateUploadProtocol

@testable import SpoolgateSpool

final class TemporarySpool {
    /// Initially missing.
    let path: String

    /// `isInMemory` false: on the disk of temporary files.
    init(isInMemory: Bool = true) {
        let name = "spoolgate-test-\(UInt64.random(in: 0...(.max)))"
        // In memory if possible: the disk calls, not the disk, prove survival of a power failure.
        path = "\(isInMemory ? ScratchDirectory.memory : NSTemporaryDirectory())/\(name)"
    }

    init(existing path: String) { self.path = path }

    deinit { try? FileManager.default.removeItem(atPath: path) }

    /// Each power failure changes the boot id.
    private var cuts = 0

    /// Opens it as another process would, with its own table of locks; with a `node`, as a shared spool.
    func open(
        _ disk: Disk = Disk(),
        reserve: Int64 = 0,
        quota: Int64? = nil,
        clock: SystemClock = SystemClock(),
        node: String? = nil,
        settling: Duration = SpoolOptions().settling
    ) throws -> Spool {
        try Spool(directory: path) { options in
            options.reserve = reserve
            options.quota = quota
            options.disk = disk
            options.clock = clock
            options.node = node
            options.settling = settling
            options.writer = node == nil ? "boot\(cuts)" : nil
        }
    }

    /// Later openers find a restarted machine, and the file of a daemon that did not end cleanly.
    func cutPower() {
        let daemon = Data("boot\(cuts)\n".utf8)
        try? daemon.write(to: URL(filePath: "\(path)/daemons/before\(cuts)"))
        restart()
    }

    /// Later openers find a restarted machine.
    func restart() { cuts += 1 }

    /// In corrupt/ if it was moved there.
    func record(_ id: UploadID) -> String {
        let corrupt = "\(path)/corrupt/\(id)"
        let isCorrupt = FileManager.default.fileExists(atPath: corrupt)
        return isCorrupt ? corrupt : "\(path)/uploads/\(id.description.prefix(1))/\(id)"
    }

    /// In corrupt/ if it was moved there.
    func data(_ id: UploadID) -> String {
        let corrupt = "\(path)/corrupt/\(id).data"
        let isCorrupt = FileManager.default.fileExists(atPath: corrupt)
        return isCorrupt ? corrupt : "\(path)/uploads/\(id.description.prefix(1))/\(id).data"
    }

    /// The name that marks the removal of an upload.
    func removal(_ id: UploadID) -> String {
        "\(path)/uploads/\(id.description.prefix(1))/\(id).removed"
    }

    /// The newest readable state in the record.
    func state(of id: UploadID) -> RecordState? {
        guard let bytes = FileManager.default.contents(atPath: record(id)),
            case .state(let state, _, _) = RecordSlots.read(Array(bytes), of: id)
        else { return nil }
        return state
    }

    /// The queue according to the files; nil without a record.
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
    static func random() -> UploadID {
        UploadID(high: .random(in: 0...(.max)), low: .random(in: 0...(.max)))
    }
}

extension UploadCreation {
    static func sample(
        _ id: UploadID = .random(),
        repeatable: Bool = true,
        owner: ExactText? = nil,
        fields: HTTPFields = [.contentType: "text/plain"],
        address: String? = "192.0.2.1",
        promise: UploadPromise = .powerCut
    ) -> UploadCreation {
        var creation = UploadCreation(
            id: id,
            route: "default",
            owner: owner,
            head: RequestHead(method: .post, target: "/files?x=1", fields: fields),
            remoteAddress: address,
            created: WallTime(seconds: 1_795_000_000)
        )
        creation.resourcePath = "/files/\(id)"
        creation.scheme = "https"
        creation.isRepeatable = repeatable
        creation.promise = promise
        return creation
    }
}

extension HTTPFields {
    /// A part of another upload.
    static let part: HTTPFields = [.tusResumable: Tus.version, .uploadConcat: "partial"]
    /// An upload concatenated from parts.
    static let joined: HTTPFields = [.tusResumable: Tus.version, .uploadConcat: "final;/a /b"]
}

extension StoredResponse {
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
