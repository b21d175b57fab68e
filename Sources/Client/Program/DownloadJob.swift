// One run of `spoolgate-download`.
//
// Invariant: a state is kept only for a download into a regular file, because other content cannot be read back.

import Glibc
import HTTPTypes
import ResumableUpload
import SpoolgatePosix
import SpoolgateTextFormats

/// The library runs on the main thread; signals arrive on another thread.
struct DownloadJob {
    let url: String
    let target: DownloadTarget
    /// The file with the download's state; nil if the content is written directly to the target.
    let file: StateFile?
    let options: Download.Options
    let report: ProgressReport
    let interruption: Interruption

    func perform(notBefore: WallTime?) throws {
        let moment = file?.state.notBefore ?? notBefore
        file?.state.notBefore = moment
        do throws(SystemError) { try file?.save() } catch {
            throw Ending(error, "a download cannot start without its state file")
        }
        if let reason = interruption.wait(until: moment, toBegin: "the download", report.wait) {
            report.end(status: nil, code: Ending.Code.later.rawValue, reason: reason)
            throw Ending(.later, reason)
        }
        // The content is durable, and after a power failure an older token is good enough.
        let keeper = StateKeeper(file, isDurable: false)
        let handler = keeper.handler(report) { (token: Download.Token) in token.text }
        let destination: Download.Destination =
            target.path == "-" ? .pieces(Self.handOver) : .file(target.path)
        let download: Download
        if let token = file?.state.token.flatMap({ Download.Token($0) }) {
            let begun = file?.state.begun.description ?? ""
            report.say("\(DownloadCommand.name): continuing the download begun at \(begun)")
            download = .resume(from: token, to: destination, options: options, onEvent: handler)
        } else {
            download = Download(url, to: destination, options: options, onEvent: handler)
        }
        interruption.onRequest { download.requestPause() }
        do throws(TransferError) {
            let response = try download.perform(unless: { interruption.isRequested })
            file?.remove()
            report.end(status: response.status.code, code: 0, reason: nil)
        } catch {
            throw failed(error, hasToken: download.token != nil)
        }
    }

    /// Removes the state and the received content.
    func cancel() throws {
        guard let file, file.wasThere else {
            file?.remove()
            throw Ending(.refused, "nothing to cancel: no such download was begun here")
        }
        do throws(TransferError) { try Download.discardPart(of: target.path) } catch {
            throw Ending(error.code, error.reason)
        }
        file.remove()
    }

    private static func handOver(_ bytes: [UInt8]) throws {
        guard ResponseOutput.write(bytes) else { throw SystemError("write", on: "standard output") }
    }

    private func failed(_ error: TransferError, hasToken: Bool) -> Ending {
        // Content that was written directly cannot be resumed.
        let canGoOn = !target.isDirect && error.mayWorkLater
        let code = error.code
        var sentence = error.reason
        if error.kind == .paused, canGoOn { sentence += "; run the same command again to continue" }
        if canGoOn || hasToken || error.kind == .redirected {
            try? file?.save()
        } else {
            file?.remove()
        }
        if let response = error.response, target.path != "-" { ResponseOutput.write(response) }
        report.end(status: error.response?.status.code, code: code.rawValue, reason: sentence)
        return Ending(code, sentence)
    }
}
