// A command that looks at the content of a whole upload before it is delivered.
//
// Its exit status decides: 0 takes it, 1 refuses it, anything else means that nobody knows. Invariant:
// at most `maximumConcurrent` run at a time, and none longer than its timeout and a short grace.

import HTTPTypes
import Posix
package import Settings
package import Spool
import TextFormats
package import UploadProtocol
import Upstream

/// What an inspection found.
package enum InspectionVerdict: Sendable, Equatable {
    /// Nothing against it.
    case taken
    /// It is not to be delivered; what the command wrote, for the client's eyes.
    case refused(message: String)
    /// The command did not come to a verdict.
    case failed(reason: String)
}

/// What a command is told of an upload beside its content.
package struct InspectionSubject: Sendable {
    /// The variables it gets, beside `PATH` and `SPOOLGATE_FILE`.
    package var environment: [(name: String, value: String)]
    /// `SPOOLGATE_NAME`: what the client calls the file, harmless.
    package var name: String

    /// An upload with a resource.
    package init(_ creation: UploadCreation, length: Int64) {
        self.init(
            id: creation.id,
            route: creation.route,
            owner: creation.principal,
            head: creation.head,
            length: length
        )
    }

    /// Any upload.
    package init(id: UploadID, route: String, owner: String?, head: RequestHead, length: Int64) {
        let type = UpstreamFields.delivered(head.fields)[.contentType]
        name = ClientFileName(target: head.target, fields: head.fields).harmless
        environment = [
            ("SPOOLGATE_UPLOAD", id.description), ("SPOOLGATE_ROUTE", route),
            ("SPOOLGATE_OWNER", owner ?? ""),
            ("SPOOLGATE_NAME", name),
            ("SPOOLGATE_TYPE", type ?? ""), ("SPOOLGATE_LENGTH", String(length)),
            ("SPOOLGATE_TARGET", head.target),
        ].map { ($0.0, Self.clean($0.1)) }
    }

    /// A variable's value ends at the first NUL.
    private static func clean(_ text: String) -> String { text.filter { $0 != "\0" } }
}

/// The inspection of one route.
///
/// Any thread.
package final class Inspection: Sendable {
    /// The settings it was made with.
    package let settings: InspectionSettings
    private let running = Monitor(0)
    /// How long a command has to end by itself once it was told to.
    private static let grace = Duration.seconds(5)
    /// Most of a command's output that is read.
    private static let messageLimit = 4 << 10
    private static let step = Duration.milliseconds(500)

    /// Makes an inspection; nil where the settings name no command.
    init?(_ settings: InspectionSettings) {
        guard !settings.command.isEmpty else { return nil }
        self.settings = settings
    }

    /// Runs the command on a file.
    ///
    /// Blocks while no place is free, and while the command runs, each for up to the timeout.
    ///
    /// - Parameters:
    ///   - path: the file, the command's last argument.
    ///   - subject: what the command is told of the upload.
    ///   - meanwhile: called at least once a second; what it throws ends the command and the wait.
    /// - Returns: the verdict.
    /// - Throws: what `meanwhile` throws.
    package func run(
        _ path: String,
        about subject: InspectionSubject,
        meanwhile: () throws(SpoolError) -> Void
    ) throws(SpoolError) -> InspectionVerdict {
        guard try takePlace(meanwhile) else {
            return .failed(
                reason: "no free place among the inspections within "
                    + "\(DurationText.text(settings.timeout)); raise inspect.maximum-concurrent or "
                    + "look at what \(settings.command[0]) does with the time"
            )
        }
        defer { running.update { $0 -= 1 } }
        let child: ChildProcess
        do throws(SystemError) {
            child = try ChildProcess(
                settings.command + [path],
                environment: [
                    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
                    ("SPOOLGATE_FILE", path),
                ] + subject.environment,
                limit: Self.messageLimit
            )
        } catch {
            return .failed(reason: "the inspection could not be started: \(error)")
        }
        let deadline = Deadline.after(settings.timeout)
        while true {
            if let end = child.wait(until: min(deadline, .after(Self.step))) {
                return verdict(end, child, path, subject)
            }
            if deadline.hasPassed {
                child.terminate(grace: Self.grace)
                return .failed(
                    reason: "\(settings.command[0]) did not end within "
                        + "\(DurationText.text(settings.timeout)) (inspect.timeout) and was killed"
                )
            }
            try meanwhile()
        }
    }

    private func takePlace(_ meanwhile: () throws(SpoolError) -> Void) throws(SpoolError) -> Bool {
        let deadline = Deadline.after(settings.timeout)
        while true {
            let place: Void? = running.wait(until: min(deadline, .after(Self.step))) { running in
                guard running < settings.maximumConcurrent else { return nil }
                running += 1
                return ()
            }
            if place != nil { return true }
            if deadline.hasPassed { return false }
            try meanwhile()
        }
    }

    private func verdict(
        _ end: ChildProcess.End,
        _ child: ChildProcess,
        _ path: String,
        _ subject: InspectionSubject
    ) -> InspectionVerdict {
        let program = settings.command[0]
        switch end {
        case .exited(0): return .taken
        case .exited(1):
            // Scanners begin their line with the path, which is not the client's to know.
            let output = Self.replacing(path, with: subject.name, in: child.output)
            return .refused(message: Self.text(output))
        case .exited(let status):
            return .failed(reason: "\(program) ended with status \(status)\(Self.tail(child))")
        case .signalled(let number):
            return .failed(reason: "\(program) was ended by signal \(number)\(Self.tail(child))")
        }
    }

    /// What a command said when it failed, for the operator.
    private static func tail(_ child: ChildProcess) -> String {
        let said = text(child.errors.isEmpty ? child.output : child.errors)
        return said.isEmpty ? "" : ": \(said.prefix(200))"
    }

    private static func replacing(_ old: String, with new: String, in bytes: [UInt8]) -> [UInt8] {
        let old = Array(old.utf8)
        var replaced: [UInt8] = []
        var rest = bytes[...]
        while let byte = rest.first {
            if rest.starts(with: old) {
                replaced += new.utf8
                rest.removeFirst(old.count)
            } else {
                replaced.append(byte)
                rest.removeFirst()
            }
        }
        return replaced
    }

    /// A command's output as one line of text.
    private static func text(_ bytes: [UInt8]) -> String {
        var text = String.UnicodeScalarView()
        // The limit can have cut a character in two, which decoding makes U+FFFD.
        for scalar in String(decoding: bytes, as: UTF8.self).unicodeScalars {
            switch scalar {
            case "\0"..."\u{1f}", "\u{7f}"..."\u{9f}", "\u{2028}", "\u{2029}": text.append(" ")
            default: text.append(scalar)
            }
        }
        let line = String(text)
        guard let first = line.firstIndex(where: { $0 != " " }),
            let last = line.lastIndex(where: { $0 != " " })
        else { return "" }
        return String(line[first...last])
    }
}
