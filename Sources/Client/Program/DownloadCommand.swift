// `spoolgate-download`: fetches a file, and the same command again goes on.

import ArgumentParser
import ResumableUpload
import SpoolgateBuild
import SpoolgatePosix
import SpoolgateTextFormats

struct DownloadCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "spoolgate-download",
        abstract: "Download a file, whatever the network does.",
        usage: """
            spoolgate-download [<options>] <url> <file>
            spoolgate-download [<options>] <url> <directory>
            spoolgate-download [<options>] <url> -
            spoolgate-download --cancel [<options>] <url> <file>
            spoolgate-download --list
            """,
        discussion: """
            What has come is in <file>.part; the same command again goes on with it, and the file has its \
            name when it is whole. In a directory it is named as the URL ends. Exits 0 when it is there, 1 when it was refused, 2 for a wrong \
            command line, 75 when the same command is to be run again. See spoolgate-download(1).
            """,
        version: ProgramVersion.text(build: ProgramBuild.identity)
    )

    @Argument(help: "What is fetched.", transform: transferURL)
    var url: String?

    @Argument(
        help: "Where it goes: a file, a directory, or - for standard output.",
        completion: .file()
    )
    var file: String?

    @Flag(
        help:
            "Verify what comes by the server's Repr-Digest (SHA-256); refused where it tells none."
    )
    var digest = false

    @OptionGroup var options: TransferOptions

    func validate() throws {
        if options.list {
            guard file == nil, url == nil else { throw ValidationError("--list takes no URL.") }
        } else if file == nil || url == nil {
            throw ValidationError("A URL and a file, or -, are needed.")
        } else if options.cancel, file == "-" {
            throw ValidationError("--cancel: nothing is kept of what went to standard output.")
        }
    }

    func run() throws {
        if options.list { return try TransferListing.tell(.download) }
        guard let file, let url else { return }
        let interruption = try Interruption()
        var download = Download.Options()
        download.fields = try options.fields()
        download.verifiesDigest = digest
        download.connection = try options.connection()
        let target = try DownloadTarget(file, for: url)
        // What was handed over cannot be gone on with by another process.
        var state: StateFile?
        if !target.isDirect {
            state = try StateDirectory().take(TransferState(.download, url: url, file: target.path))
            guard state != nil else {
                throw Ending(.later, "this download is under way already, by another process")
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
