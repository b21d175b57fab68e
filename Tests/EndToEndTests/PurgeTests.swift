// `purge` keeps the uploads that their route promises to clients.

import Foundation
import SpoolgateTestSupport
import Testing

@Suite("purge keeps uploads that clients may still resume")
struct PurgeTests {
    private static let day = 86_400.0
    private let sandbox: Sandbox
    private let partial: String
    private let delivered: String

    init() throws {
        sandbox = try Sandbox(
            routeSettings: ["limits: {max-age: 7d}", "response-retention: 30d"]
        )
        partial = try sandbox.create("/files/partial")
        _ = try sandbox.append(partial, Data("some".utf8), complete: false)
        delivered = try sandbox.create("/files/delivered")
        _ = try sandbox.append(delivered, Data("all".utf8))
        // The daemon purges once an hour, and records it.
        let note = sandbox.directory.path() + "/spool/purged"
        try eventually("the daemon's first purge is over") {
            FileManager.default.fileExists(atPath: note)
        }
    }

    /// Sets an upload's last activity back.
    private func age(_ resource: String, by seconds: Double) throws {
        let id = try #require(resource.split(separator: "/").last).description
        let spool = sandbox.directory.path() + "/spool"
        let files = try #require(FileManager.default.enumerator(atPath: spool))
        for case let file as String in files
        where file.hasPrefix("uploads/") && file.contains(id) {
            try FileManager.default.setAttributes(
                [.modificationDate: Date(timeIntervalSinceNow: -seconds)],
                ofItemAtPath: "\(spool)/\(file)"
            )
        }
    }

    private func status(of resource: String) throws -> Int {
        try sandbox.ask("HEAD", resource).status
    }

    @Test(
        "neither without arguments nor with an age of a day does it remove an upload that a route keeps",
        arguments: [[], ["--older-than", "24h"], ["--older-than", "0s"]]
    )
    func promised(arguments: [String]) throws {
        try age(partial, by: 25 * 3600)
        try age(delivered, by: 29 * Self.day)
        let purge = try sandbox.spoolgate(["purge"] + arguments)
        #expect((purge.status, purge.output) == (0, "Removed 0 uploads, freed 0B.\n"))
        #expect(try sandbox.offset(of: partial) == 4)
        let again = try sandbox.append(delivered, offset: 3)
        #expect(again.status == 201)
        #expect(try sandbox.delivered().count == 1)
    }

    @Test("uploads older than every route's time are removed, each queue by its own time")
    func over() throws {
        try age(partial, by: 8 * Self.day)
        try age(delivered, by: 8 * Self.day)
        let dry = try sandbox.spoolgate("purge", "--dry-run")
        #expect(dry.output.contains("Would remove 1 upload,"))
        let old = try sandbox.spoolgate("purge", "--older-than", "9d")
        #expect(old.output.contains("Removed 0 uploads,"))
        let purge = try sandbox.spoolgate("purge")
        #expect(purge.output.contains("Removed 1 upload,"))
        #expect(purge.output.contains("(incoming, "))
        #expect(try status(of: partial) == 404)
        try age(delivered, by: 31 * Self.day)
        #expect(try sandbox.spoolgate("purge", "--json").output.contains("\"removed\":1"))
        #expect(try sandbox.spoolgate("list").output.hasPrefix("No uploads in "))
    }

    @Test(
        "only --force removes more, and only with an age; without it, no complete upload is named"
    )
    func force() throws {
        try age(partial, by: 3600)
        let unsaid = try sandbox.spoolgate("purge", "--force")
        #expect((unsaid.status, unsaid.output) == (64, ""))
        #expect(unsaid.errors.contains("use --older-than"))
        for queue in ["deferred", "corrupt"] {
            let kept = try sandbox.spoolgate("purge", "--older-than", "0s", "--queue", queue)
            #expect((kept.status, kept.output) == (64, ""))
            #expect(kept.errors.contains("Uploads in \(queue) are kept"))
        }
        let purge = try sandbox.spoolgate("purge", "--force", "--older-than", "30m")
        #expect(purge.output.contains("Removed 1 upload,"))
        #expect(try status(of: partial) == 404)
        #expect(try status(of: delivered) == 204)
    }

    @Test("an upload of a removed route is kept for the longest time, and the output says so")
    func unknownRoute() throws {
        try age(partial, by: 8 * Self.day)
        try sandbox.reload(replacing: "  default:\n", with: "  other:\n")
        try sandbox.reload(replacing: "max-age: 7d", with: "max-age: 9d")
        let purge = try sandbox.spoolgate("purge")
        #expect(purge.status == 0)
        #expect(
            purge.output.contains(
                "Kept 1 upload of routes missing from the settings (default) for the longest "
                    + "time that any route sets: incoming 9d, hold 30d, delivered 30d."
            )
        )
        try age(partial, by: 10 * Self.day)
        #expect(try sandbox.spoolgate("purge").output.contains("Removed 1 upload,"))
    }

    @Test("content whose record is lost is moved to corrupt, listed, and removed after a week")
    func lostRecord() throws {
        let id = try #require(partial.split(separator: "/").last.map { String($0) })
        try age(partial, by: 2 * 3600)
        let spool = sandbox.spool
        try FileManager.default.removeItem(
            at: spool.appending(path: "uploads/\(id.prefix(1))/\(id)")
        )
        let dry = try sandbox.spoolgate("purge", "--dry-run")
        #expect(dry.output.contains("would move to corrupt \(id) (content without a record, "))
        let purge = try sandbox.spoolgate("purge")
        #expect(
            purge.output.contains("\nmoved to corrupt \(id) ") || purge.output.hasPrefix("moved to")
        )
        #expect(purge.output.contains("Removed 0 uploads,"))
        let content = spool.appending(path: "corrupt/\(id).data")
        #expect(FileManager.default.fileExists(atPath: content.path()))
        let shown = try sandbox.spoolgate("show", id)
        #expect(shown.output.contains("corrupt") && shown.output.contains("its record is missing"))
        #expect(try sandbox.spoolgate("list", "--state", "corrupt").output.contains(id))
        #expect(try sandbox.spoolgate("purge").output.contains("Removed 0 uploads,"))
        try FileManager.default.setAttributes(
            [.modificationDate: Date(timeIntervalSinceNow: -8 * 86_400)],
            ofItemAtPath: content.path()
        )
        #expect(try sandbox.spoolgate("purge").output.contains("removed \(id) (corrupt, "))
        #expect(!FileManager.default.fileExists(atPath: content.path()))
    }

    @Test("without readable settings nothing is removed")
    func unreadable() throws {
        try age(partial, by: 8 * Self.day)
        try sandbox.reload(replacing: "max-age: 7d", with: "max-age: long")
        let purge = try sandbox.spoolgate("purge")
        #expect((purge.status, purge.output) == (78, ""))
        #expect(
            try sandbox.spoolgate("list", "--spool", sandbox.directory.path() + "/spool")
                .status == 78
        )
        let files = try FileManager.default.subpathsOfDirectory(
            atPath: sandbox.directory.path() + "/spool/uploads"
        )
        #expect(files.contains { $0.count > 26 })
    }
}
