// `spoolgate-upload`: sends a file or a stream, and the same command again goes on.
//
// What is said on the wire is the library's (ResumableUpload); here is what a person asks for, and what is kept
// until the next run.

import ArgumentParser
import Glibc
import HTTPTypes
import ResumableUpload
import SpoolgateBuild
import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol

struct UploadCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "spoolgate-upload",
        abstract: "Upload a file or a stream, whatever the network does.",
        usage: """
            spoolgate-upload [<options>] <file> ... <url>
            spoolgate-upload [<options>] - <url>
            spoolgate-upload [<options>] --files-from <list> [<file> ...] <url>
            spoolgate-upload --cancel [<options>] <file> ... <url>
            spoolgate-upload --list
            """,
        discussion: """
            One file goes to the URL; if that ends in /, the file's name is added. Several files, and those in a \
            directory, go below the URL, as if it ended in /: DIR/sub/f goes to URL/sub/f.

            The same command again goes on where the last one ended. Exits 0 when everything was taken, 1 when \
            anything was refused, 2 for a wrong command line, 75 when the same command is to be run again. \
            See spoolgate-upload(1).
            """,
        version: ProgramVersion.text(build: ProgramBuild.identity)
    )

    /// How an upload begins.
    enum Creation: String, CaseIterable, ExpressibleByArgument {
        case careful, optimistic, plain
    }

    /// The version that is named.
    enum Interop: Equatable {
        case version(Int)
        case none
    }

    @Argument(
        help: ArgumentHelp(
            "Files and directories, or - for standard input; the last word is the URL.",
            valueName: "file ... url"
        ),
        completion: .file()
    )
    var words: [String] = []

    @Option(
        help: ArgumentHelp(
            "Send the files named in this list too, one a line; - is standard input. A relative name keeps its "
                + "path below the URL; of an absolute one, or one with .., the last part is kept.",
            valueName: "list"
        ),
        completion: .file()
    )
    var filesFrom: String?

    @Flag(name: [.customShort("0"), .long], help: "A zero byte ends each name in the list.")
    var null = false

    @Flag(help: "Follow symbolic links in directories; without it they are left out.")
    var follow = false

    @Flag(help: "Send each file to the URL as it is, also if that ends in /.")
    var noName = false

    @Option(
        name: [.customShort("X"), .customLong("request")],
        help: ArgumentHelp("The method. (default: POST)", valueName: "method"),
        transform: reading("is no method to upload with.") { text in
            HTTPRequest.Method(text).flatMap { [.get, .head].contains($0) ? nil : $0 }
        }
    )
    var method = HTTPRequest.Method.post

    @OptionGroup var options: TransferOptions

    @Option(
        help: ArgumentHelp(
            "careful: an empty request first, also for small files; optimistic: one round trip less; "
                + "plain: one ordinary request. (default: careful; plain below 1MiB, but not by POST for several files)",
            valueName: "way"
        )
    )
    var creation: Creation?

    @Option(
        help: ArgumentHelp(
            "The interop version of the draft that is named, \(Self.versions), or none. "
                + "(default: \(Upload.Options.interopVersions.upperBound))",
            valueName: "version"
        ),
        transform: { text in
            if text == "none" { return Interop.none }
            guard let version = Int(digits: text),
                Upload.Options.interopVersions.contains(version)
            else {
                throw ValidationError("'\(text)' is no version; write \(Self.versions), or none.")
            }
            return .version(version)
        }
    )
    var interop: Interop = .version(Upload.Options.interopVersions.upperBound)

    private static let versions =
        "\(Upload.Options.interopVersions.lowerBound) to \(Upload.Options.interopVersions.upperBound)"

    @Flag(help: "Digest the file before (SHA-256), so that the server can verify it.")
    var digest = false

    @Flag(help: "A stream gives the same bytes as the last time: go on with it.")
    var sameStream = false

    @Option(
        name: [.short, .long],
        help: ArgumentHelp(
            "Files that are sent at a time, 1 to 32. (default: 4)",
            valueName: "number"
        ),
        transform: reading("is no number from 1 to 32.") { text in
            Int(digits: text).flatMap { (1...32).contains($0) ? $0 : nil }
        }
    )
    var jobs = 4

    @Option(
        help: ArgumentHelp(
            "Most bytes of one request's content, for proxies with a limit: a number alone, or with K, M or G; at "
                + "least 64K. (default: no limit, and what a proxy's 413 shows)",
            valueName: "size"
        ),
        transform: reading("is no size of 64K or more; write it as 90M.") { text in
            ByteSize.readShort(text).flatMap { $0 >= 64 << 10 ? $0 : nil }
        }
    )
    var maxAppend: Int64?

    @Option(
        help: ArgumentHelp(
            "If an interrupted file changed; anew: cancel the old upload and send the file.",
            valueName: "way"
        )
    )
    var changed = ChangedFile.refuse

    @Flag(help: "Follow the server where it keeps uploads at another origin.")
    var otherOrigin = false

    mutating func validate() throws {
        if options.list {
            guard words.isEmpty, filesFrom == nil else {
                throw ValidationError("--list takes no file.")
            }
            return
        }
        guard let last = words.last, words.count > 1 || filesFrom != nil else {
            throw ValidationError("A file, or -, and a URL are needed.")
        }
        _ = try transferURL(last)
        let isStream = words.first == "-" && words.count == 2 && filesFrom == nil
        if words.dropLast().contains("-"), !isStream {
            throw ValidationError("Standard input goes alone: - is no file beside others.")
        }
        if words.dropLast().contains("") { throw ValidationError("A file has an empty name.") }
        if digest, isStream {
            throw ValidationError("--digest: of a stream nobody knows it before it ends.")
        }
        if creation == .plain, isStream {
            throw ValidationError("A stream is not sent by one ordinary request.")
        }
        if creation == .plain, maxAppend != nil {
            throw ValidationError("--max-append: one ordinary request is not divided.")
        }
        if noName, method == .put, words.count > 2 || filesFrom != nil {
            throw ValidationError("--no-name: by PUT each file would take the place of the last.")
        }
        if null, filesFrom == nil { throw ValidationError("--null is for --files-from.") }
    }

    /// What the command line names.
    private func request() -> UploadSources.Request {
        UploadSources.Request(
            paths: words.dropLast().map { FilePath(text: $0) },
            list: filesFrom.map { FilePath(text: $0) },
            isNull: null,
            url: TargetURL(words.last ?? ""),
            isFollowing: follow,
            isExact: noName
        )
    }

    func run() throws {
        if options.list { return try TransferListing.tell(.upload) }
        let interruption = try Interruption()
        let request = request()
        if options.cancel { return try cancel(request, interruption) }
        if let source = try UploadSources.one(request) {
            return try send(source, interruption)
        }
        try send(UploadSources(request), request, interruption)
    }

    // MARK: One file

    private func send(_ source: UploadSource, _ interruption: Interruption) throws {
        let upload = try libraryOptions()
        guard let state = try take(source) else {
            throw Ending(.later, "this upload is under way already, by another process")
        }
        var run = job(source, state, upload, interruption)
        try run.begin(
            notBefore: options.notBefore,
            withDigest: digest,
            isSameStream: sameStream
        )
        try run.perform()
    }

    private func take(_ source: UploadSource) throws -> StateFile? {
        try StateDirectory().take(
            TransferState(.upload, url: source.url, file: source.key, method: method.rawValue)
        )
    }

    private func job(
        _ source: UploadSource,
        _ state: StateFile,
        _ upload: Upload.Options,
        _ interruption: Interruption
    ) -> UploadJob {
        UploadJob(
            source: source,
            file: state,
            options: upload,
            changed: changed,
            report: ProgressReport(source.name, options.progress, file: source.shown),
            interruption: interruption
        )
    }

    // MARK: Several files

    private func send(
        _ sources: UploadSources,
        _ request: UploadSources.Request,
        _ interruption: Interruption
    ) throws {
        var upload = try libraryOptions()
        guard !upload.fields.contains(.idempotencyKey) else {
            throw Ending(
                .usage,
                "an Idempotency-Key is for one upload: send each file by a command"
            )
        }
        // A POST that is not resumable might be taken twice after a kill -9.
        if creation == nil, !method.isIdempotent { upload.plainBelow = 0 }
        guard let journal = try StateDirectory().take(request.command(method.rawValue)) else {
            throw Ending(.later, "this command is under way already, by another process")
        }
        let size = sources.files.reduce(0) { $0 + $1.size }
        let report = BatchReport(options.progress, count: sources.files.count, size: size)
        for sentence in sources.leftOut { report.say("left out \(sentence)") }
        for sentence in sources.failures { report.say(sentence) }
        let watch = Stopwatch()
        var count = BatchCount()
        var stopped: String?
        do throws(SystemError) {
            let moment = journal.content.notBefore ?? options.notBefore
            if let moment, journal.content.notBefore == nil { try journal.add(.notBefore(moment)) }
            stopped = interruption.wait(until: moment, toBegin: "the command", report.wait)
            if stopped == nil {
                let how = BatchOptions(
                    upload: upload,
                    jobs: jobs,
                    withDigest: digest,
                    changed: changed
                )
                count = try BatchJob(
                    sources.files,
                    how,
                    journal: journal,
                    report: report,
                    interruption: interruption
                ).perform()
            } else {
                count.later = sources.files.count
            }
            count.refused += sources.failures.count
            let isOver = count.refused == 0 && count.later == 0
            // Without an entry there is nothing to go on with, but for the time to begin.
            let isEmpty = journal.content.entries.isEmpty && stopped == nil
            if isOver || isEmpty { try journal.finish() } else { try journal.sync() }
        } catch {
            _ = report.end(count, code: Ending.Code.later.rawValue, "")
            throw Ending(.later, "\(error); without its journal the command does not go on")
        }
        let code: Ending.Code? = count.refused > 0 ? .refused : count.later > 0 ? .later : nil
        let summary = count.summary(seconds: Int64(watch.nanoseconds / 1_000_000_000))
        let told = report.end(count, code: code?.rawValue ?? 0, summary)
        if let code { throw Ending(code, told) }
    }

    // MARK: Giving up

    /// Cancels what the same command began; the files may be gone.
    private func cancel(
        _ request: UploadSources.Request,
        _ interruption: Interruption
    ) throws {
        let upload = try libraryOptions()
        var isThere = false
        if request.isForOne {
            let source =
                request.isForStandardInput
                ? UploadSource(standardInputTo: request.urlOfOne)
                : UploadSource(request.paths[0], to: request.urlOfOne)
            guard let state = try take(source) else {
                throw Ending(.later, "this upload is under way, by another process; end that first")
            }
            isThere = state.wasThere
            if isThere {
                try job(source, state, upload, interruption).cancel()
            } else {
                state.remove()
            }
        }
        guard let journal = try StateDirectory().take(request.command(method.rawValue)) else {
            throw Ending(.later, "this command is under way, by another process; end that first")
        }
        do {
            let code = cancel(journal, upload)
            if code != .later { try journal.remove() }
            // Each file is told already.
            if let code { throw Ending(code, nil) }
        } catch let error as SystemError {
            throw Ending(error, "look at the file and its directory")
        }
        guard isThere || journal.wasThere else {
            throw Ending(.refused, "there is nothing to cancel: no such upload was begun here")
        }
    }

    /// Cancels every upload of a journal, and tells which could not be.
    ///
    /// - Returns: `later` if the same command has to be run again, `refused` if an upload stays and is forgotten here; nil:
    ///   none was left.
    private func cancel(
        _ journal: UploadJournal,
        _ upload: Upload.Options
    ) -> Ending.Code? {
        var code: Ending.Code?
        for (key, entry) in journal.content.entries {
            guard let token = entry.token.flatMap({ Upload.Token($0) }) else { continue }
            do throws(TransferError) {
                try Upload.remove(token, options: upload)
                try? journal.add(.anew(key))
            } catch {
                code = error.mayWorkLater || code == .later ? .later : .refused
                let end = error.mayWorkLater ? "" : ", and is forgotten here"
                Self.tell("\(FilePath(text: key.path).shown): \(error.reason)\(end)")
            }
        }
        return code
    }

    private func libraryOptions() throws -> Upload.Options {
        var upload = Upload.Options()
        upload.method = method
        upload.fields = try options.fields()
        upload.connection = try options.connection()
        upload.allowsOtherOrigin = otherOrigin
        upload.maximumAppend = maxAppend
        if case .version(let version) = interop {
            upload.interopVersion = version
        } else {
            upload.interopVersion = nil
        }
        switch creation {
        case .careful?: upload.plainBelow = 0
        case .optimistic?:
            upload.creation = .optimistic
            upload.plainBelow = 0
        case .plain?: upload.creation = .plain
        case nil: break
        }
        return upload
    }
}
