// One run of a command for several files: concurrent uploads of one session.
//
// Invariants: a failed file does not stop the others; a file that the journal lists as accepted is not sent; the token
// of an upload is durable before its last byte is sent.

import Glibc
import HTTPTypes
import ResumableUpload
import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol

struct BatchOptions: Sendable {
    /// The options of each upload; the rate limit applies to the whole command.
    var upload: Upload.Options
    /// The number of files sent concurrently, at least 1.
    var jobs: Int
    var withDigest: Bool
    var changed: ChangedFile
}

/// The number of files with each result.
struct BatchCount: Equatable, Sendable {
    /// Files accepted in this run, and their bytes.
    var accepted = 0
    var bytes: Int64 = 0
    /// The number of files skipped because they had been accepted in an earlier run.
    var skipped = 0
    /// Files that were refused or are missing.
    var refused = 0
    /// Files left for another run.
    var later = 0

    /// Returns a one-sentence summary of a run that took `seconds`.
    func summary(seconds: Int64) -> String {
        func files(_ count: Int) -> String { count == 1 ? "1 file" : "\(count) files" }
        let seconds = max(1, seconds)
        var parts: [String] = []
        if accepted > 0 || skipped + refused + later == 0 {
            parts.append(
                "\(files(accepted)) uploaded, \(ByteSize.rounded(bytes)) in \(TransferLine.time(seconds)), "
                    + "\(ByteSize.rounded(bytes / seconds))/s"
            )
        }
        if skipped > 0 { parts.append("\(files(skipped)) uploaded before") }
        if refused > 0 { parts.append("\(files(refused)) refused") }
        if later > 0 {
            parts.append("\(files(later)) remaining: run the same command again")
        }
        return parts.joined(separator: "; ")
    }
}

/// The upload of several files in one run of the command.
///
/// Each of the concurrent jobs has its own thread; another thread handles signals and pauses the uploads.
final class BatchJob: Sendable {
    private enum Outcome {
        case accepted(Transfer.Response)
        case skipped
        case failed(Ending.Code, String, status: Int?)
        /// The command was asked to stop.
        case stopped
    }

    private struct State {
        var next = 0
        var running: [Int: Upload] = [:]
        var count = BatchCount()
        /// The number of successive files that the server did not accept in time.
        var unlucky = 0
        /// The time from which the command may give up without progress.
        var patience: Deadline
        var working: Int
        var fault: SystemError?
    }

    /// The number of successive failures that, after `patience`, leave the remaining files for the next run.
    private static let maximumUnlucky = 16

    private let files: [UploadSource]
    private let options: BatchOptions
    private let journal: UploadJournal
    private let report: BatchReport
    private let interruption: Interruption
    private let session: TransferSession
    private let threads: Int
    private let retryFor: Duration
    private let state: Monitor<State>

    init(
        _ files: [UploadSource],
        _ options: BatchOptions,
        journal: UploadJournal,
        report: BatchReport,
        interruption: Interruption
    ) {
        self.files = files
        self.journal = journal
        self.report = report
        self.interruption = interruption
        threads = max(1, min(options.jobs, files.count))
        retryFor = options.upload.connection.retryFor
        var options = options
        if options.upload.connection.rateLimit > 0 {
            let share = options.upload.connection.rateLimit / Int64(threads)
            options.upload.connection.rateLimit = max(1, share)
        }
        self.options = options
        session = TransferSession(maximumTransfers: threads)
        state = Monitor(State(patience: .after(retryFor), working: threads))
    }

    /// Sends the remaining files.
    ///
    /// - Throws: `SystemError` if the journal cannot be read or written; in that case, no more files are sent.
    func perform() throws(SystemError) -> BatchCount {
        interruption.onRequest { [self] in pauseAll() }
        for slot in 1..<threads {
            do throws(SystemError) {
                try SpoolgatePosix.Thread.start(name: "job", stackSize: 512 * 1024) { [self] in
                    work(slot)
                }
            } catch {
                // The other jobs send its files.
                state.update { $0.working -= 1 }
            }
        }
        work(0)
        let _: Void? = state.wait(until: .never) { $0.working == 0 ? () : nil }
        let (counted, fault) = state.updateQuietly { ($0.count, $0.fault) }
        if let fault { throw fault }
        var count = counted
        count.later = files.count - count.accepted - count.skipped - count.refused
        return count
    }

    private var isStopped: Bool {
        interruption.isRequested || state.updateQuietly { $0.fault != nil }
    }

    private func pauseAll() {
        for upload in state.updateQuietly(\.running).values { upload.requestPause() }
    }

    // MARK: One job

    private func work(_ slot: Int) {
        while !isStopped, let source = next() {
            report.begin(slot, source)
            settle(send(source, slot), source, slot)
        }
        state.update { $0.working -= 1 }
    }

    private func next() -> UploadSource? {
        state.updateQuietly { state in
            let isLost = state.unlucky >= Self.maximumUnlucky && state.patience.hasPassed
            guard state.next < files.count, !isLost else { return nil }
            defer { state.next += 1 }
            return files[state.next]
        }
    }

    private func settle(_ outcome: Outcome, _ source: UploadSource, _ slot: Int) {
        state.updateQuietly { state in
            switch outcome {
            case .accepted:
                state.count.accepted += 1
                state.count.bytes += source.size
            case .skipped: state.count.skipped += 1
            case .failed(.later, _, _):
                state.unlucky += 1
                return
            case .failed: state.count.refused += 1
            case .stopped: return
            }
            state.unlucky = 0
            state.patience = .after(retryFor)
        }
        switch outcome {
        case .accepted(let response):
            report.end(slot, source, status: response.status.code, code: 0, place: response.place)
        case .skipped: report.end(slot, source, status: nil, code: 0, wasTaken: true)
        case .failed(let code, let sentence, let status):
            report.end(slot, source, status: status, code: code.rawValue, reason: sentence)
        case .stopped:
            let reason = "stopped; run the same command again to continue"
            report.end(slot, source, status: nil, code: Ending.Code.later.rawValue, reason: reason)
        }
    }

    // MARK: One file

    private func send(_ source: UploadSource, _ slot: Int) -> Outcome {
        let key = JournalKey(path: source.key, url: source.url)
        let entry = journal.entry(of: key)
        let present = source.fingerprint
        if let done = entry.done, done == present { return .skipped }
        if let reason = entry.unknownOutcome {
            let sentence = "\(reason); --cancel removes its state, and the next run starts again"
            return .failed(.refused, sentence, status: nil)
        }
        do {
            var upload = options.upload
            upload.connection.retryFor = state.updateQuietly(\.patience).remaining
            let kept = entry.token.flatMap { Upload.Token($0) }
            let token = try options.changed.token(kept, for: source, upload)
            if kept != nil, token == nil { note(.anew(key)) }
            if options.withDigest, token == nil, let path = source.path {
                guard let digest = try FileDigest.value(of: path, isStopped: { isStopped }) else {
                    return .stopped
                }
                upload.fields[.reprDigest] = digest
            }
            // The fingerprint of the file that the library opened, which may differ from `present`.
            let sent = Monitor(token?.fingerprint ?? present ?? "")
            let handler: @Sendable (Upload.Event) -> Void = { [self] event in
                take(event, key, slot, sent)
            }
            let transfer =
                token.map {
                    session.resumeUpload(
                        from: $0,
                        body: source.body,
                        options: upload,
                        onEvent: handler
                    )
                }
                ?? session.upload(source.body, to: source.url, options: upload, onEvent: handler)
            state.updateQuietly { $0.running[slot] = transfer }
            defer { state.updateQuietly { $0.running[slot] = nil } }
            let response = try transfer.perform(unless: { isStopped })
            note(.done(key, sent.updateQuietly { $0 }))
            return .accepted(response)
        } catch let error as TransferError {
            return failed(error, key, entry)
        } catch {
            return .failed(.refused, "\(error); check the file and its disk", status: nil)
        }
    }

    private func failed(
        _ error: TransferError,
        _ key: JournalKey,
        _ entry: JournalContent.Entry
    ) -> Outcome {
        if error.kind == .unknownOutcome {
            note(.unknown(key, error.reason), isDurable: true)
        } else if error.token == nil, journal.entry(of: key).token != nil {
            note(.anew(key))
        }
        if error.kind == .paused { return .stopped }
        let sentence = FailureText.sentence(
            error,
            of: options.upload,
            isPlain: options.upload.plainBelow > 0
        )
        // The command line is right for other files, so this is not a usage error.
        let code: Ending.Code = error.code == .usage ? .refused : error.code
        return .failed(code, sentence, status: error.response?.status.code)
    }

    private func take(
        _ event: Upload.Event,
        _ key: JournalKey,
        _ slot: Int,
        _ sent: Monitor<String>
    ) {
        switch event {
        case .resumable(let token):
            if let stated = token.fingerprint { sent.updateQuietly { $0 = stated } }
            note(.token(key, token.text), isDurable: token.mayBeComplete)
        case .progress(let progress):
            if report.note(slot, progress) {
                state.updateQuietly { $0.patience = .after(retryFor) }
            }
        case .waiting(let duration, let reason): report.wait(slot, duration, reason)
        case .begunAnew(let reason):
            note(.anew(key))
            report.beginAnew(slot, reason)
        }
    }

    /// Adds a line to the journal; if writing fails, the whole run stops.
    private func note(_ line: JournalLine, isDurable: Bool = false) {
        do throws(SystemError) {
            if isDurable { try journal.addDurably(line) } else { try journal.add(line) }
        } catch {
            state.updateQuietly { $0.fault = $0.fault ?? error }
            pauseAll()
        }
    }
}
