// A command that looks at the content of a whole upload before it is delivered.
//
// Its exit status decides: 0 takes it, 1 refuses it, anything else means that nobody knows. Invariant:
// at most `maximumConcurrent` run at a time, and none longer than its timeout and a short grace.

import HTTPTypes
import SpoolgatePosix
package import SpoolgateSettings
package import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import SpoolgateUpstream

/// What an inspection found.
package enum InspectionVerdict: Sendable, Equatable {
    /// Nothing against it.
    case taken
    /// It is not to be delivered; what the command wrote, for the client's eyes.
    case refused(message: String)
    /// The command did not come to a verdict.
    case failed(reason: String)

    /// Which of them it is.
    fileprivate var word: String {
        switch self {
        case .taken: "taken"
        case .refused: "refused"
        case .failed: "failed"
        }
    }
}

/// The inspection of one route.
///
/// Any thread.
package final class Inspection: Sendable {
    /// The settings it was made with.
    package let settings: InspectionSettings
    private let running = Monitor(0)
    private let times: Histograms<String>
    /// How long a command has to end by itself once it was told to.
    private static let grace = Duration.seconds(5)
    /// Most of a command's output that is read.
    private static let messageLimit = 4 << 10
    private static let step = Duration.milliseconds(500)

    /// Makes an inspection, which counts how long its verdicts took; nil where the settings name no command.
    init?(_ settings: InspectionSettings, _ times: Histograms<String>) {
        guard !settings.command.isEmpty else { return nil }
        self.settings = settings
        self.times = times
    }

    /// Runs the command on a file.
    ///
    /// Blocks while no place is free, and while the command runs, each for up to the timeout.
    ///
    /// - Parameters:
    ///   - path: the file, the command's last argument.
    ///   - creation: the upload, of which the command is told.
    ///   - length: bytes of content.
    ///   - meanwhile: called at least once a second; what it throws ends the command and the wait.
    /// - Returns: the verdict.
    /// - Throws: what `meanwhile` throws.
    package func run(
        _ path: String,
        about creation: UploadCreation,
        length: Int64,
        meanwhile: () throws(SpoolError) -> Void
    ) throws(SpoolError) -> InspectionVerdict {
        let watch = Stopwatch()
        let verdict = try judge(path, about: creation, length: length, meanwhile)
        times[verdict.word].add(nanoseconds: watch.nanoseconds)
        return verdict
    }

    private func judge(
        _ path: String,
        about creation: UploadCreation,
        length: Int64,
        _ meanwhile: () throws(SpoolError) -> Void
    ) throws(SpoolError) -> InspectionVerdict {
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
                    + "many others were running; raise inspect.maximum-concurrent, or check why "
                    + "\(settings.command[0]) is slow"
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
            return verdict(end, child, path, creation.head)
        }
        child.terminate(grace: Self.grace)
        return .failed(
            reason: "\(settings.command[0]) did not exit within "
                + "\(DurationText.text(settings.timeout)) (inspect.timeout) and was killed"
        )
    }

    /// Waits for what `look` waits for until a deadline; nil where the timeout comes first.
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

    /// What the client calls the file, harmless.
    private static func name(_ head: RequestHead) -> String {
        ClientFileName(target: head.target, fields: head.fields).harmless
    }

    /// The variables that a command gets.
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

    private func verdict(
        _ end: ChildProcess.End,
        _ child: ChildProcess,
        _ path: String,
        _ head: RequestHead
    ) -> InspectionVerdict {
        let program = settings.command[0]
        switch end {
        case .exited(0): return .taken
        case .exited(1):
            // Scanners begin their line with the path, which is not the client's to know.
            let output = child.output.replacing(Array(path.utf8), with: Self.name(head).utf8)
            return .refused(message: Self.text(output))
        case .exited(let status):
            return .failed(reason: "\(program) exited with status \(status)\(Self.tail(child))")
        case .signalled(let number):
            return .failed(reason: "\(program) was killed by signal \(number)\(Self.tail(child))")
        }
    }

    /// What a command said when it failed, for the operator.
    private static func tail(_ child: ChildProcess) -> String {
        let said = text(child.errors.isEmpty ? child.output : child.errors)
        return said.isEmpty ? "" : ": \(said.prefix(200))"
    }

    /// A command's output as one line of text.
    private static func text(_ bytes: [UInt8]) -> String {
        // The limit can have cut a character in two, which decoding makes U+FFFD.
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
