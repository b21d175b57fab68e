// A real spool, settings with two routes, and the real program for a command script.
//
// A script describes an upload by its state in `list`, or by `deferred` (waits for the queue) or `waiting` (waits for
// the client), and by facts: offset, length, idle (a duration), owner, route, method, target, reason, status. `%20` is
// a space.

import Foundation
import HTTPTypes
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateTextFormats
import SpoolgateUploadProtocol

@testable import SpoolgateSpool

final class ScriptStage {
    private let scratch: ScratchDirectory
    private let spool: Spool
    private var busy: [String: Upload] = [:]

    private var spoolPath: String { scratch.file("var") }
    private var settingsPath: String { scratch.file("spoolgate.yaml") }

    init() throws {
        // In memory, where files use the same space on every machine.
        scratch = try ScratchDirectory(in: ScratchDirectory.memory, "script")
        spool = try Spool(directory: scratch.file("var"))
        try """
        listen: unix:\(scratch.file("spoolgate.sock"))
        spool: {directory: \(scratch.file("var"))}
        routes:
          default: {upstream: "http://127.0.0.1:3000", anonymous: allow}
          photos: {upstream: "http://127.0.0.1:3001", anonymous: allow}
        """.write(toFile: settingsPath, atomically: true, encoding: .utf8)
        // The scripts' `spoolgate` uses these settings unless the command names others.
        try FileManager.default.createDirectory(
            atPath: scratch.file("bin"),
            withIntermediateDirectories: false
        )
        let program = scratch.file("bin/spoolgate")
        try """
        #!/bin/sh
        case " $* " in
            *" --config "* | *" --version "* | *" --generate-completion-script "*)
                exec '\(Sandbox.program)' "$@" ;;
        esac
        exec '\(Sandbox.program)' "$@" --config '\(settingsPath)'
        """.write(toFile: program, atomically: true, encoding: .utf8)
        try FileManager.default.setAttributes([.posixPermissions: 0o755], ofItemAtPath: program)
        for name in ["spoolgate-upload", "spoolgate-download"] {
            try FileManager.default.createSymbolicLink(
                atPath: scratch.file("bin/\(name)"),
                withDestinationPath: UploadCommandWorld.program
            )
        }
    }

    // MARK: Commands

    /// The output is in the script's words.
    func run(_ typed: CommandScript.Typed) throws -> (
        output: [String], errors: [String], status: Int32
    ) {
        var arguments = ["/bin/sh", "-c", typed.text]
        if let columns = typed.columns {
            let script = scratch.file("typed.sh")
            try "stty cols \(columns) rows 24; \(typed.text)\n"
                .write(toFile: script, atomically: true, encoding: .utf8)
            arguments = ["/usr/bin/script", "-qec", "/bin/sh \(script)", "/dev/null"]
        }
        let command = try Command(
            "/usr/bin/env",
            [
                "-C", scratch.path, "PATH=\(scratch.file("bin")):/usr/bin:/bin", "TERM=xterm",
                "XDG_STATE_HOME=\(scratch.file("state"))", "no_proxy=*", "TZ=UTC",
            ] + arguments
        )
        return (lines(command.output), lines(command.errors), command.status)
    }

    private func lines(_ text: String) -> [String] {
        let words = [(spoolPath, "SPOOL"), (settingsPath, "SETTINGS"), (scratch.path, "PLACE")]
        var text = text.replacingOccurrences(of: "\r\n", with: "\n")
        for (path, word) in words { text = text.replacingOccurrences(of: path, with: word) }
        text.replace(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ/, with: "TIME")
        // An empty line ends the output in a script.
        return text.split(separator: "\n").map(String.init)
    }

    // MARK: Uploads

    func make(_ text: String, _ words: [String]) throws {
        guard let id = UploadID(text), let state = words.first else {
            throw NeverHappened(description: "no upload: \(text) \(words)")
        }
        var facts: [String: String] = [:]
        for word in words.dropFirst() {
            let pair = word.split(separator: "=", maxSplits: 1).map(String.init)
            facts[pair[0]] = pair.count == 2 ? decoded(pair[1]) : ""
        }
        // All its times are as of then.
        let idle = facts["idle"].flatMap { DurationText.read($0) } ?? .zero
        let then = WallTime(seconds: WallTime.now.seconds - idle.components.seconds)
        let spool = try Spool(directory: spoolPath) { $0.clock = SystemClock(wall: { then }) }
        let upload = try spool.create(creation(id, facts, then), requestRelease: {})
        let offset = facts["offset"].flatMap { ByteSize.read($0) } ?? 0
        let length = facts["length"].flatMap { ByteSize.read($0) }
        if let length { try upload.setLength(length) }
        if offset > 0 {
            let bytes = [UInt8](repeating: 0x78, count: Int(offset))
            try upload.append(bytes.span.bytes)
        }
        try bring(upload, to: state, facts)
        if state == "receiving" { busy[text] = upload } else { upload.unlock() }
        if state == "corrupt" { try corrupt(id) }
        try age(id, as: then)
    }

    private func decoded(_ text: String) -> String {
        String(decoding: PercentText.decode(text.utf8), as: UTF8.self)
    }

    private func creation(
        _ id: UploadID,
        _ facts: [String: String],
        _ created: WallTime
    ) -> UploadCreation {
        var creation = UploadCreation(
            id: id,
            route: facts["route"] ?? "default",
            owner: facts["owner"].map { ExactText($0) },
            head: RequestHead(
                method: HTTPRequest.Method(rawValue: facts["method"] ?? "POST") ?? .post,
                target: facts["target"] ?? "/files/a.txt",
                fields: [.contentType: "text/plain", .authorization: "Basic c2VjcmV0"]
            ),
            remoteAddress: "192.0.2.1",
            created: created
        )
        creation.resourcePath = "/files/upload-resource/\(id)"
        creation.scheme = "https"
        return creation
    }

    private func bring(_ upload: Upload, to state: String, _ facts: [String: String]) throws {
        let reason = facts["reason"]
        let later = WallTime(seconds: WallTime.now.seconds + 7_800)
        switch state {
        case "partial", "receiving", "corrupt": try upload.sync()
        case "deferred": try upload.postpone(reason: reason, .queue(later))
        case "waiting": try upload.postpone(reason: reason, .client(later))
        case "held", "failed", "indeterminate":
            guard let cause = HoldCause(rawValue: state) else { return }
            try upload.hold(cause, reason: reason ?? "the upstream did not answer")
        case "delivered", "refused":
            try upload.beginAttempt()
            let status = facts["status"].flatMap { Int($0) } ?? 201
            let head = ResponseHead(status: .init(code: status), fields: [:])
            try upload.finish(with: StoredResponse(head: head, content: []))
        default: throw NeverHappened(description: "no state: \(state)")
        }
    }

    private func corrupt(_ id: UploadID) throws {
        let record = "\(spoolPath)/uploads/\(id.description.prefix(1))/\(id)"
        try FileManager.default.moveItem(atPath: record, toPath: "\(spoolPath)/corrupt/\(id)")
    }

    private func age(_ id: UploadID, as then: WallTime) throws {
        let time = Date(timeIntervalSince1970: Double(then.seconds))
        let record = "\(spoolPath)/uploads/\(id.description.prefix(1))/\(id)"
        for path in [record, record + ".data", "\(spoolPath)/corrupt/\(id)"]
        where FileManager.default.fileExists(atPath: path) {
            try FileManager.default.setAttributes(
                [.modificationDate: time],
                ofItemAtPath: path
            )
        }
    }

    /// Locks an upload, as a request does.
    func use(_ text: String) throws {
        guard let id = UploadID(text), let upload = try spool.tryLock(id) else {
            throw NeverHappened(description: "missing or in use: \(text)")
        }
        busy[text] = upload
    }

    func free(_ text: String) { busy.removeValue(forKey: text)?.unlock() }

    deinit { for upload in busy.values { upload.unlock() } }
}
