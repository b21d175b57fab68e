// A command that inspects the content of a complete upload before it is delivered.
//
// Exit status 0 passes the upload, 1 refuses it, and any other status is a failure. Invariant: at most
// `maximumConcurrent` commands run at a time, none longer than its timeout and a short grace period.

import HTTPTypes
import SpoolgatePosix
package import SpoolgateSettings
package import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import SpoolgateUpstream

/// The result of an inspection.
package enum InspectionResult: Sendable, Equatable {
    case passed
    /// The command's output, for the client.
    case refused(message: String)
    case failed(reason: String)

    fileprivate var word: String {
        switch self {
        case .passed: "passed"
        case .refused: "refused"
        case .failed: "failed"
        }
    }
}

/// The inspection of one route.
///
/// Thread-safe.
package final class Inspection: Sendable {
    package let settings: InspectionSettings
    private let running = Monitor(0)
    private let times: Histograms<String>
    /// How long a command may take to exit after SIGTERM before it is killed.
    private static let grace = Duration.seconds(5)
    /// The maximum number of bytes kept of each output of a command; the rest is discarded.
    private static let messageLimit = 4 << 10
    private static let step = Duration.milliseconds(500)

    /// Returns nil if the settings name no command.
    ///
    /// Records the duration of each run in `times`.
    init?(_ settings: InspectionSettings, _ times: Histograms<String>) {
        guard !settings.command.isEmpty else { return nil }
        self.settings = settings
        self.times = times
    }

    /// Runs the command on a file.
    ///
    /// Waits until fewer commands are running than the maximum, then waits for the command. The timeout limits each
    /// wait.
    ///
    /// `path` becomes the command's last argument. `meanwhile` is called at least once a second. An error that
    /// `meanwhile` throws ends the command and the wait.
    ///
    /// - Throws: the errors of `meanwhile`.
    package func run(
        _ path: String,
        about creation: UploadCreation,
        length: Int64,
        meanwhile: () throws(SpoolError) -> Void
    ) throws(SpoolError) -> InspectionResult {
        let watch = Stopwatch()
        let result = try judge(path, about: creation, length: length, meanwhile)
        times[result.word].add(nanoseconds: watch.nanoseconds)
        return result
    }

    private func judge(
        _ path: String,
        about creation: UploadCreation,
        length: Int64,
        _ meanwhile: () throws(SpoolError) -> Void
    ) throws(SpoolError) -> InspectionResult {
        let place: Void? = try wait(meanwhile) { deadline in
            running.wait(until: deadline) { running in
                guard running < settings.maximumConcurrent else { return nil }
                running += 1
                return ()
            }
        }
        guard place != nil else {
            return .failed(
                reason:
                    "the inspection did not start within \(DurationText.text(settings.timeout)), because too "
                    + "many others were running; check why \(settings.command[0]) is slow"
            )
        }
        defer { running.update { $0 -= 1 } }
        let child: ChildProcess
        do throws(SystemError) {
            child = try ChildProcess(
                settings.command + [path],
                environment: Self.environment(path, creation, length: length),
                limit: Self.messageLimit
            )
        } catch {
            return .failed(reason: "the inspection could not be started: \(error)")
        }
        if let end = try wait(meanwhile, until: { child.wait(until: $0) }) {
            return result(end, child, path, creation.head)
        }
        child.terminate(grace: Self.grace)
        return .failed(
            reason: "\(settings.command[0]) did not exit within "
                + "\(DurationText.text(settings.timeout)) (inspect.timeout) and was killed"
        )
    }

    /// Calls `look` with short deadlines, and `meanwhile` between calls.
    ///
    /// Returns nil if the timeout expires.
    private func wait<Found>(
        _ meanwhile: () throws(SpoolError) -> Void,
        until look: (Deadline) -> Found?
    ) throws(SpoolError) -> Found? {
        let deadline = Deadline.after(settings.timeout)
        while true {
            if let found = look(min(deadline, .after(Self.step))) { return found }
            if deadline.hasPassed { return nil }
            try meanwhile()
        }
    }

    /// The client's name for the file, made safe.
    private static func name(_ head: RequestHead) -> String {
        ClientFileName(target: head.target, fields: head.fields).harmless
    }

    private static func environment(
        _ path: String,
        _ creation: UploadCreation,
        length: Int64
    ) -> [(name: String, value: String)] {
        let head = creation.head
        return [
            ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
            ("SPOOLGATE_FILE", path), ("SPOOLGATE_UPLOAD", "\(creation.id)"),
            ("SPOOLGATE_ROUTE", creation.route),
            ("SPOOLGATE_OWNER", creation.principal?.text ?? ""),
            ("SPOOLGATE_NAME", name(head)),
            ("SPOOLGATE_TYPE", UpstreamFields.delivered(head.fields)[.contentType] ?? ""),
            ("SPOOLGATE_LENGTH", "\(length)"), ("SPOOLGATE_TARGET", head.target),
        ].map { name, value in (name, value.filter { $0 != "\0" }) }
    }

    private func result(
        _ end: ChildProcess.End,
        _ child: ChildProcess,
        _ path: String,
        _ head: RequestHead
    ) -> InspectionResult {
        let program = settings.command[0]
        switch end {
        case .exited(0): return .passed
        case .exited(1):
            // Scanners begin their line with the path, and clients must not learn the path.
            let output = child.output.replacing(Array(path.utf8), with: Self.name(head).utf8)
            return .refused(message: Self.text(output))
        case .exited(let status):
            return .failed(reason: "\(program) exited with status \(status)\(Self.tail(child))")
        case .signalled(let number):
            return .failed(reason: "\(program) was killed by signal \(number)\(Self.tail(child))")
        }
    }

    /// The start of a failed command's output, for the log.
    private static func tail(_ child: ChildProcess) -> String {
        let said = text(child.errors.isEmpty ? child.output : child.errors)
        return said.isEmpty ? "" : ": \(said.prefix(200))"
    }

    private static func text(_ bytes: [UInt8]) -> String {
        // The limit may have split a character, so decoding may yield U+FFFD.
        let spaced = String(decoding: bytes, as: UTF8.self).unicodeScalars.map {
            scalar -> Character in
            switch scalar {
            case "\0"..."\u{1f}", "\u{7f}"..."\u{9f}", "\u{2028}", "\u{2029}": " "
            default: Character(scalar)
            }
        }
        return String(Substring(String(spaced)).withoutOuterWhitespace)
    }
}
