// One run of `spoolgate-upload` for one file or stream.
//
// The invariant: an upload that the server may have accepted is sent again only with the user's consent.

import Glibc
import HTTPTypes
import ResumableUpload
import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// The library runs on the main thread; signals arrive on another thread.
struct UploadJob {
    let source: UploadSource
    let file: StateFile
    var options: Upload.Options
    let changed: ChangedFile
    let report: ProgressReport
    let interruption: Interruption

    // MARK: Before

    /// Waits for the start time.
    mutating func begin(notBefore: WallTime?, withDigest: Bool) throws {
        if let reason = file.state.unknownOutcome {
            throw ended(
                .refused,
                "\(reason); --cancel removes its state, and the next run starts again"
            )
        }
        // The first run sets the time: `2h` is a different time in each run.
        file.state.notBefore = file.state.notBefore ?? notBefore
        try save()
        let moment = file.state.notBefore
        if let reason = interruption.wait(until: moment, toBegin: "the upload", report.wait) {
            throw ended(.later, reason)
        }
        if source.isStream { try giveUpStream() }
        if withDigest, file.state.digest == nil {
            file.state.digest = try digest()
            try save()
        }
        if let digest = file.state.digest { options.fields[.reprDigest] = digest }
    }

    /// Cancels the upload of an interrupted run, because this stream may be a different one.
    private func giveUpStream() throws {
        guard let token = file.state.token.flatMap({ Upload.Token($0) }) else { return }
        if token.mayBeComplete, !options.method.isIdempotent {
            throw ended(
                .refused,
                "the last stream to \(token.target) was sent completely, but no response arrived; check "
                    + "whether the server has it, then use --cancel"
            )
        }
        var quick = options
        quick.connection.retryFor = .zero
        // If the removal fails, the server removes the upload when the upload expires.
        try? Upload.remove(token, options: quick)
        (file.state.token, file.state.received, file.state.total) = (nil, 0, nil)
        try save()
    }

    private func digest() throws -> String {
        guard !source.isStream, let path = source.path else {
            throw ended(.usage, "--digest: \(source.shown) cannot be read twice")
        }
        do throws(SystemError) {
            if let value = try FileDigest.value(of: path, isStopped: { interruption.isRequested }) {
                return value
            }
        } catch {
            throw ended(.refused, "\(error); check the file and its disk")
        }
        throw ended(.later, "stopped while the digest of \(source.shown) was computed")
    }

    // MARK: The upload

    func perform() throws {
        let watch = Stopwatch()
        let begun = file.state.received
        let handler = StateKeeper(file).handler(report) { (token: Upload.Token) in token.text }
        let upload: Upload
        if let token = try tokenToGoOnWith() {
            let what = "continuing the upload begun at \(file.state.begun)"
            report.say("\(UploadCommand.name): \(what)")
            upload = .resume(from: token, body: source.body, options: options, onEvent: handler)
        } else {
            upload = Upload(source.body, to: source.url, options: options, onEvent: handler)
        }
        interruption.onRequest { upload.requestPause() }
        do throws(TransferError) {
            taken(try upload.perform(unless: { interruption.isRequested }), watch, begun)
        } catch {
            throw failed(error)
        }
    }

    /// Returns the token to resume with; nil to upload from the beginning.
    private func tokenToGoOnWith() throws -> Upload.Token? {
        let kept = file.state.token.flatMap { Upload.Token($0) }
        do throws(TransferError) {
            let token = try changed.token(kept, for: source, options)
            guard kept != nil, token == nil else { return token }
            report.beginAnew("\(source.shown) changed: the old upload was cancelled")
            (file.state.token, file.state.received, file.state.total) = (nil, 0, nil)
            try? file.save()
            return nil
        } catch {
            throw failed(error)
        }
    }

    private func taken(_ response: Transfer.Response, _ watch: Stopwatch, _ begun: Int64) {
        file.remove()
        let size = file.state.total ?? file.state.received
        report.end(status: response.status.code, code: 0, reason: nil, place: response.place)
        ResponseOutput.write(response)
        if let place = response.place, !report.isJSON {
            UploadCommand.report("the server accepted \(source.name) and redirects to \(place)")
        }
        if response.isLost {
            UploadCommand.report(
                "the server accepted \(source.name), but its response is no longer available"
            )
        } else if report.isForPerson {
            let seconds = max(1, Int64(watch.nanoseconds / 1_000_000_000))
            let rate = ByteSize.rounded((size - begun) / seconds)
            let phrase = "\(response.status.code) \(response.status.reasonPhrase)"
            let text =
                "\(source.name): \(ByteSize.rounded(size)) uploaded in \(TransferLine.time(seconds)), "
                + "\(rate)/s: \(phrase)"
            try? StandardError().write(line: text.forTerminal, .notice)
        }
    }

    private func failed(_ error: TransferError) -> Ending {
        let sentence = FailureText.sentence(
            error,
            of: options,
            isPlain: options.creation == .plain || source.size < options.plainBelow
        )
        if error.kind == .unknownOutcome { file.state.unknownOutcome = error.reason }
        file.state.token = error.token?.text
        if let response = error.response { ResponseOutput.write(response) }
        return ended(
            error.code,
            sentence,
            status: error.response?.status.code,
            keepsState: error.kind == .redirected
        )
    }

    // MARK: Giving up

    func cancel() throws {
        guard file.wasThere else {
            throw ended(.refused, "nothing to cancel: no such upload was begun here")
        }
        if let token = file.state.token.flatMap({ Upload.Token($0) }) {
            do throws(TransferError) {
                try Upload.remove(token, options: options)
            } catch {
                // A server that refuses every cancellation must not prevent a new upload.
                if error.kind == .refused {
                    file.remove()
                    let sentence = "\(error.reason), but its local state is removed"
                    throw Ending(.refused, FailureText.naming(source, sentence))
                }
                throw failed(error)
            }
        }
        file.remove()
        report.end(status: nil, code: 0, reason: nil)
    }

    // MARK: Ends

    private func save() throws {
        do throws(SystemError) { try file.save() } catch {
            throw Ending(error, "an upload cannot start without its state file")
        }
    }

    /// Saves or removes the state.
    private func ended(
        _ code: Ending.Code,
        _ sentence: String,
        status: Int? = nil,
        keepsState: Bool = false
    ) -> Ending {
        let state = file.state
        if code == .later || keepsState || state.token != nil || state.unknownOutcome != nil {
            // If saving fails, the older state on the disk is still correct.
            try? file.save()
        } else {
            file.remove()
        }
        report.end(status: status, code: code.rawValue, reason: sentence)
        return Ending(code, FailureText.naming(source, sentence))
    }
}
