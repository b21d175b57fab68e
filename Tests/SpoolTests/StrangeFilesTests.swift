// Names that the spool did not create (links, pipes, directories), and a tree that other users can change.

import Foundation
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import Testing

@testable import SpoolgateSpool

enum StrangeFile: String, CaseIterable, Sendable, CustomTestStringConvertible {
    case link, dangling, pipe, socket, directory

    var testDescription: String { rawValue }

    /// Replaces the file at `path`; returns the file outside to which a link leads.
    @discardableResult
    func replace(_ path: String, outside: String) throws -> String {
        let target = "\(outside).target"
        let manager = FileManager.default
        if manager.fileExists(atPath: path) {
            // The original file, so that following the link would work.
            try manager.moveItem(atPath: path, toPath: target)
        }
        switch self {
        case .link: try manager.createSymbolicLink(atPath: path, withDestinationPath: target)
        case .dangling: try manager.createSymbolicLink(atPath: path, withDestinationPath: "/none")
        case .pipe: try #require(mkfifo(path, 0o600) == 0)
        case .directory:
            try manager.createDirectory(atPath: path, withIntermediateDirectories: false)
        case .socket:
            try StreamSocket(listeningOn: .path(path)).close()
        }
        return target
    }
}

@Suite("Files that are not the spool's own")
struct StrangeFilesTests {
    /// An unlocked upload.
    private func upload(in directory: TemporarySpool) throws -> UploadID {
        let upload = try directory.open().create(.sample(), requestRelease: {})
        try upload.append("content")
        try upload.sync()
        upload.unlock()
        return upload.creation.id
    }

    private func removeTarget(_ directory: TemporarySpool) {
        try? FileManager.default.removeItem(atPath: "\(directory.path).target")
    }

    @Test(
        "in place of a record or data file they are set aside, never followed and never waited for",
        .timeLimit(.minutes(10)),
        arguments: StrangeFile.allCases,
        [true, false]
    )
    func file(kind: StrangeFile, isData: Bool) throws {
        for isRecovered in [true, false] {
            let directory = TemporarySpool()
            defer { removeTarget(directory) }
            let id = try upload(in: directory)
            let path = isData ? directory.data(id) : directory.record(id)
            let target = try kind.replace(path, outside: directory.path)
            let before = FileManager.default.contents(atPath: target)
            let spool = try directory.open()
            // A walk checks content only if there is something else to do.
            if isRecovered, !isData {
                var findings: [Recovery.Finding] = []
                #expect(spool.recover { findings.append($0) }.corrupt == 1)
                guard case .setAside(id, let reason)? = findings.first else {
                    Issue.record("\(findings)")
                    return
                }
                #expect(reason.contains("not a regular file"))
            } else {
                #expect(throws: SpoolError.self) { try spool.lock(id) }
            }
            #expect(try spool.lock(id) == nil)
            #expect(FileManager.default.contents(atPath: target) == before)
            // Purge lists it, and removes all but a directory, which may not be empty.
            let summary = try #require(try spool.summaries().first)
            #expect((summary.queue, summary.id) == (.corrupt, id))
            let isRemoved = try spool.remove(id, ifUnchangedSince: summary)
            #expect(isRemoved == (kind != .directory))
            #expect(try spool.summaries().isEmpty == isRemoved)
            #expect(FileManager.default.contents(atPath: target) == before)
        }
    }

    @Test(
        "in place of a directory of the spool they are refused",
        arguments: [StrangeFile.link, .pipe]
    )
    func directory(kind: StrangeFile) throws {
        for name in ["queue", "uploads", "tmp", "uploads/7", "uploads/v", "daemons"] {
            let directory = TemporarySpool()
            defer { removeTarget(directory) }
            _ = try directory.open()
            try kind.replace("\(directory.path)/\(name)", outside: directory.path)
            #expect {
                try directory.open()
            } throws: { error in
                guard case .unusable(_, let reason, _) = error as? SpoolError else { return false }
                return reason.contains("/\(name): ")
            }
        }
    }

    @Test("in place of format or clock they are refused", arguments: StrangeFile.allCases)
    func rootFiles(kind: StrangeFile) throws {
        for name in ["format", "clock"] {
            let directory = TemporarySpool()
            defer { removeTarget(directory) }
            _ = try directory.open()
            try kind.replace("\(directory.path)/\(name)", outside: directory.path)
            #expect {
                _ = try directory.open()
            } throws: { error in
                (error as? SpoolError).map { "\($0)".contains("/\(name)") } ?? false
            }
        }
    }

    @Test("a subdirectory that is replaced under a running daemon leads nowhere")
    func replacedLater() throws {
        let directory = TemporarySpool()
        let spool = try directory.open()
        let id = try upload(in: directory)
        let shard = "\(directory.path)/uploads/\(id.description.prefix(1))"
        let outside = TemporarySpool()
        try FileManager.default.createDirectory(
            atPath: outside.path,
            withIntermediateDirectories: true
        )
        try FileManager.default.moveItem(atPath: shard, toPath: "\(shard).old")
        try FileManager.default.createSymbolicLink(
            atPath: shard,
            withDestinationPath: outside.path
        )
        let upload = try #require(try spool.lock(id))
        try upload.append(", more")
        try upload.beginAttempt()
        try upload.finish(with: .sample)
        #expect(try FileManager.default.contentsOfDirectory(atPath: outside.path).isEmpty)
        #expect(throws: SpoolError.self) { try directory.open() }
    }

    @Test("the spool's own path may be a link, which the operator made")
    func linkToSpool() throws {
        let directory = TemporarySpool()
        let id = try upload(in: directory)
        let link = TemporarySpool()
        try FileManager.default.createSymbolicLink(
            atPath: link.path,
            withDestinationPath: directory.path
        )
        #expect(try link.open().lock(id)?.state.offset == 7)
    }

    @Test(
        "a tree that other users can access is refused, and the message says where",
        arguments: [0o750, 0o701]
    )
    func modes(mode: Int) throws {
        for name in ["", "/corrupt", "/uploads/3"] {
            let directory = TemporarySpool()
            _ = try directory.open()
            try FileManager.default.setAttributes(
                [.posixPermissions: mode],
                ofItemAtPath: directory.path + name
            )
            #expect {
                try directory.open()
            } throws: { error in
                guard case .unusable(_, let reason, _) = error as? SpoolError else { return false }
                return reason.contains(
                    "\(directory.path)\(name) has mode 0\(String(mode, radix: 8))"
                )
            }
        }
    }

    @Test("an empty directory that other users can access becomes private when it becomes a spool")
    func madePrivate() throws {
        let directory = TemporarySpool()
        try FileManager.default.createDirectory(
            atPath: directory.path,
            withIntermediateDirectories: true,
            attributes: [.posixPermissions: 0o755]
        )
        _ = try directory.open()
        let attributes = try FileManager.default.attributesOfItem(atPath: directory.path)
        #expect(attributes[.posixPermissions] as? Int == 0o700)
    }

    @Test("everything in a spool is its owner's alone")
    func ownModes() throws {
        let directory = TemporarySpool()
        let old = umask(0)
        defer { umask(old) }
        _ = try upload(in: directory)
        let manager = FileManager.default
        let names = try #require(manager.enumerator(atPath: directory.path))
        for case let name as String in names {
            let attributes = try manager.attributesOfItem(atPath: "\(directory.path)/\(name)")
            let mode = attributes[.posixPermissions] as? Int
            let isDirectory = attributes[.type] as? FileAttributeType == .typeDirectory
            #expect(mode == (isDirectory ? 0o700 : 0o600), "\(name)")
        }
    }

    @Test("another user's spool is refused", .enabled(if: geteuid() == 0))
    func owner() throws {
        let directory = TemporarySpool()
        _ = try directory.open()
        try #require(chown("\(directory.path)/uploads/4", 12_345, 12_345) == 0)
        #expect {
            try directory.open()
        } throws: { error in
            guard case .unusable(_, let reason, _) = error as? SpoolError else { return false }
            return reason.contains("uploads/4 belongs to user 12345")
        }
    }
}
