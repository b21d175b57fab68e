// A spool of another build, stored by `Tests/Lab/Upgrade/store.sh COMMIT`: its directory, and the facts about its
// uploads.
//
// Invariant: only the writer in its files is changed, to the running kernel or another one.

import Foundation
import SpoolgateTestSupport
import SpoolgateUploadProtocol

@testable import SpoolgateSpool

final class StoredSpool {
    private struct Knowledge: Codable {
        var written: Date
        var uploads: [UpgradeUpload]
    }

    private static let folder = Sandbox.root.appending(path: "Tests/Lab/Upgrade/spools")

    static let commits: [String] = {
        let names = (try? FileManager.default.contentsOfDirectory(atPath: folder.path())) ?? []
        return names.filter { $0.hasSuffix(".json") }.map { String($0.dropLast(5)) }.sorted()
    }()

    let directory: String
    let written: Date
    let uploads: [UpgradeUpload]
    private let scratch: ScratchDirectory

    /// Unpacks the spool as if the process crashed or the machine restarted since.
    init(of commit: String, _ cases: [UpgradeCase], isAfterPowerCut: Bool) throws {
        scratch = try ScratchDirectory(in: ScratchDirectory.memory)
        directory = scratch.file("spool")
        let archive = Self.folder.appending(path: "\(commit).tar.xz").path()
        try Self.tar(["-xJpf", archive, "--no-same-owner", "-C", scratch.path])
        let file = Self.folder.appending(path: "\(commit).json")
        let known = try JSONDecoder().decode(Knowledge.self, from: Data(contentsOf: file))
        (written, uploads) = (known.written, known.uploads)
        for upload in uploads {
            guard let scene = cases.first(where: { $0.name == upload.name }) else { continue }
            upload.state = isAfterPowerCut ? scene.stateAfterPowerCut : scene.state
        }
        let kernel = try String(
            contentsOfFile: "/proc/sys/kernel/random/boot_id",
            encoding: .utf8
        ).filter(\.isHexDigit).prefix(16)
        try setWriter(isAfterPowerCut ? String(kernel.reversed()) : String(kernel))
    }

    static func store(_ stage: UpgradeStage, of commit: String) throws {
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        let parent = stage.sandbox.spool.deletingLastPathComponent().path()
        try tar([
            "-cJf", folder.appending(path: "\(commit).tar.xz").path(), "--sort=name", "--owner=0",
            "--group=0", "--numeric-owner", "-C", parent, "spool",
        ])
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
        let known = Knowledge(written: Date(), uploads: stage.uploads)
        try (encoder.encode(known) + Data("\n".utf8))
            .write(to: folder.appending(path: "\(commit).json"))
    }

    private static func tar(_ arguments: [String]) throws {
        let done = try Command("/usr/bin/tar", arguments)
        guard done.status == 0 else { throw NeverHappened(description: "tar: \(done.errors)") }
    }

    private func setWriter(_ writer: String) throws {
        for path in try FileManager.default.subpathsOfDirectory(atPath: directory)
        where path.hasPrefix("uploads/") && !path.hasSuffix(".data") && path.contains("/") {
            guard let id = path.split(separator: "/").last.flatMap({ UploadID($0) }) else {
                continue
            }
            let url = URL(filePath: "\(directory)/\(path)")
            try RecordSlots.edit(url, of: id) { line in
                line.replacing(#/ writer=[0-9a-f]{16} /#) { _ in " writer=\(writer) " }
            }
        }
    }
}

extension RecordSlots {
    /// Changes each slot's line, given without its checksum, and keeps the file's time.
    static func edit(_ url: URL, of id: UploadID, _ change: (String) -> String) throws {
        let date = try url.resourceValues(forKeys: [.contentModificationDateKey])
        let file = try FileHandle(forUpdating: url)
        for start in promised + early {
            try file.seek(toOffset: UInt64(start))
            guard let slot = try file.read(upToCount: size), slot.count == size,
                let line = Checksum.verified(Array(slot)[...], for: id)
            else { continue }
            let bytes = Array(change(String(decoding: line, as: UTF8.self)).utf8)
            let sum = bytes.withUnsafeBufferPointer { Checksum.sum(of: $0, for: id) }
            let digits = String(sum, radix: 16)
            let zeros = String(repeating: "0", count: Checksum.digitCount - digits.count)
            let text = String(decoding: bytes, as: UTF8.self) + "\(Checksum.mark)\(zeros)\(digits)"
            let padding = String(repeating: " ", count: size - 1 - text.utf8.count)
            try file.seek(toOffset: UInt64(start))
            try file.write(contentsOf: Data((text + padding + "\n").utf8))
        }
        try file.close()
        // This determines the upload's age.
        try FileManager.default.setAttributes(
            [.modificationDate: date.contentModificationDate ?? Date()],
            ofItemAtPath: url.path()
        )
    }
}
