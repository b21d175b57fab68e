// `spoolgate-download`: downloads a file; the same command continues an interrupted download.

import ArgumentParser
import ResumableUpload
import SpoolgatePosix
import SpoolgateTextFormats

struct DownloadCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "spoolgate-download",
        abstract: "Download a file over an unreliable network.",
        usage: """
            spoolgate-download [<options>] <url> <file>
            spoolgate-download [<options>] <url> <directory>
            spoolgate-download [<options>] <url> -
            spoolgate-download --cancel [<options>] <url> <file>
            spoolgate-download --list
            """,
        discussion: """
            Until it is complete, the file is named <file>.part; the same command continues an interrupted \
            download. In a directory, the file is named after the last part of the URL's path. Exits with 0 if the \
            download is complete, 1 if it was refused, 2 for a wrong command line, 75 if the same command should \
            be run again. See spoolgate-download(1).
            """,
        version: ProgramVersion.text(build: ProgramBuild.identity)
    )

    @Argument(help: "The URL to download.", transform: transferURL)
    var url: String?

    @Argument(
        help: "The destination: a file, a directory, or - for standard output.",
        completion: .file()
    )
    var file: String?

    @Flag(
        help:
            "Check the file against the server's Repr-Digest; without one, it is refused."
    )
    var digest = false

    @OptionGroup var options: TransferOptions

    func validate() throws {
        if options.list {
            guard file == nil, url == nil else { throw ValidationError("--list takes no URL.") }
        } else if file == nil || url == nil {
            throw ValidationError("A URL and a file (or -) are required.")
        } else if options.cancel, file == "-" {
            throw ValidationError("--cancel: a download to standard output keeps no state.")
        }
    }

    func run() throws {
        if options.list { return try TransferListing.report(.download) }
        guard let file, let url else { return }
        let interruption = try Interruption()
        var download = Download.Options()
        download.fields = try options.fields()
        download.verifiesDigest = digest
        download.connection = try options.connection()
        let target = try DownloadTarget(file, for: url)
        // A direct download cannot be resumed, and keeps no state.
        var state: StateFile?
        if !target.isDirect {
            state = try StateDirectory().take(TransferState(.download, url: url, file: target.path))
            guard state != nil else {
                throw Ending(.later, "this download is already running in another process")
            }
        }
        let run = DownloadJob(
            url: url,
            target: target,
            file: state,
            options: download,
            report: ProgressReport(target.name, options.progress),
            interruption: interruption
        )
        if options.cancel { return try run.cancel() }
        try run.perform(notBefore: options.notBefore)
    }
}
