// `spoolgate-upload`: sends files or a stream; the same command continues an interrupted upload.

import ArgumentParser
import Glibc
import HTTPTypes
import ResumableUpload
import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol

struct UploadCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "spoolgate-upload",
        abstract: "Upload files or a stream over an unreliable network.",
        usage: """
            spoolgate-upload [<options>] <file> ... <url>
            spoolgate-upload [<options>] - <url>
            spoolgate-upload [<options>] --files-from <list> [<file> ...] <url>
            spoolgate-upload --cancel [<options>] <file> ... <url>
            spoolgate-upload --list
            """,
        discussion: """
            One file is sent to the URL; if that ends in /, the file's name is appended. Several files, and those in \
            a directory, are sent below the URL, as if it ended in /: DIR/sub/f is sent to URL/sub/f.

            The same command continues an interrupted upload. Exits with 0 if everything was accepted, 1 if \
            anything was refused, 2 for a wrong command line, 75 if the same command should be run again. \
            See spoolgate-upload(1).
            """,
        version: ProgramVersion.text(build: ProgramBuild.identity)
    )

    enum Creation: String, CaseIterable, ExpressibleByArgument {
        case careful, optimistic, plain
    }

    enum Interop: Equatable {
        case version(Int)
        case none
    }

    @Argument(
        help: ArgumentHelp(
            "Files and directories, or - for standard input; the last argument is the URL.",
            valueName: "file ... url"
        ),
        completion: .file()
    )
    var words: [String] = []

    @Option(
        help: ArgumentHelp(
            "Also send the files named in this list, one on each line; - is standard input. A relative name keeps "
                + "its path below the URL; an absolute one, or one with .., keeps only its last part.",
            valueName: "list"
        ),
        completion: .file()
    )
    var filesFrom: String?

    @Flag(name: [.customShort("0"), .long], help: "The names in the list end with a zero byte.")
    var null = false

    @Flag(help: "Follow symbolic links in directories; by default they are skipped.")
    var follow = false

    @Flag(help: "Send each file to the URL unchanged, even if it ends in /.")
    var noName = false

    @Option(
        name: [.customShort("X"), .customLong("request")],
        help: ArgumentHelp("The method. (default: POST)", valueName: "method"),
        transform: reading("is not a method for uploads; use POST or PUT.") { text in
            HTTPRequest.Method(text).flatMap { [.get, .head].contains($0) ? nil : $0 }
        }
    )
    var method = HTTPRequest.Method.post

    @OptionGroup var options: TransferOptions

    @Option(
        help: ArgumentHelp(
            "careful: an empty request first, also for small files; optimistic: one round trip less; "
                + "plain: one ordinary request. (default: careful; plain below 1MiB, but not to POST several files)",
            valueName: "way"
        )
    )
    var creation: Creation?

    @Option(
        help: ArgumentHelp(
            "The interop version of the draft to send, \(Self.versions), or none. "
                + "(default: \(Upload.Options.interopVersions.upperBound))",
            valueName: "version"
        ),
        transform: { text in
            if text == "none" { return Interop.none }
            guard let version = Int(digits: text),
                Upload.Options.interopVersions.contains(version)
            else {
                throw ValidationError(
                    "'\(text)' is not a version; use \(Self.versions), or none."
                )
            }
            return .version(version)
        }
    )
    var interop: Interop = .version(Upload.Options.interopVersions.upperBound)

    private static let versions =
        "\(Upload.Options.interopVersions.lowerBound) to \(Upload.Options.interopVersions.upperBound)"

    @Flag(help: "Read the file first, and send its SHA-256 digest for the server to verify.")
    var digest = false

    @Option(
        name: [.short, .long],
        help: ArgumentHelp(
            "The number of files sent concurrently, 1 to 32. (default: 4)",
            valueName: "number"
        ),
        transform: reading("is not a number from 1 to 32.") { text in
            Int(digits: text).flatMap { (1...32).contains($0) ? $0 : nil }
        }
    )
    var jobs = 4

    @Option(
        help: ArgumentHelp(
            "The maximum content of one request, for proxies with a limit: a number, also with K, M or G; at "
                + "least 64K. (default: no limit, until a proxy responds with 413)",
            valueName: "size"
        ),
        transform: reading("is not a size of 64K or more; use 90M.") { text in
            ByteSize.readShort(text).flatMap { $0 >= 64 << 10 ? $0 : nil }
        }
    )
    var maxAppend: Int64?

    @Option(
        help: ArgumentHelp(
            "If an interrupted file has changed; anew: cancel the old upload and send the file.",
            valueName: "way"
        )
    )
    var changed = ChangedFile.refuse

    @Flag(help: "Allow an upload resource at another origin.")
    var otherOrigin = false

    mutating func validate() throws {
        if options.list {
            guard words.isEmpty, filesFrom == nil else {
                throw ValidationError("--list takes no file.")
            }
            return
        }
        guard let last = words.last, words.count > 1 || filesFrom != nil else {
            throw ValidationError("A file (or -) and a URL are required.")
        }
        _ = try transferURL(last)
        let isStream = words.first == "-" && words.count == 2 && filesFrom == nil
        if words.dropLast().contains("-"), !isStream {
            throw ValidationError("Standard input (-) cannot be sent together with files.")
        }
        if words.dropLast().contains("") { throw ValidationError("A file name is empty.") }
        if digest, isStream {
            throw ValidationError("--digest: the digest of a stream is unknown until its end.")
        }
        if creation == .plain, isStream {
            throw ValidationError("A stream cannot be sent by one ordinary request.")
        }
        if creation == .plain, maxAppend != nil {
            throw ValidationError("--max-append: one ordinary request cannot be divided.")
        }
        if noName, method == .put, words.count > 2 || filesFrom != nil {
            throw ValidationError("--no-name: with PUT, each file would replace the last one.")
        }
        if null, filesFrom == nil { throw ValidationError("--null requires --files-from.") }
    }

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
        if options.list { return try TransferListing.report(.upload) }
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
            throw Ending(.later, "this upload is already running in another process")
        }
        var run = job(source, state, upload, interruption)
        try run.begin(notBefore: options.notBefore, withDigest: digest)
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
                "an Idempotency-Key is for one upload; use one command for each file"
            )
        }
        // After `kill -9`, an ordinary POST might be sent and accepted again.
        if creation == nil, !method.isIdempotent { upload.plainBelow = 0 }
        guard let journal = try StateDirectory().take(request.command(method.rawValue)) else {
            throw Ending(.later, "this command is already running in another process")
        }
        let size = sources.files.reduce(0) { $0 + $1.size }
        let report = BatchReport(options.progress, count: sources.files.count, size: size)
        for sentence in sources.leftOut { report.say("skipped \(sentence)") }
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
            let exceeds = count.refused == 0 && count.later == 0
            // Without entries the journal is not needed, unless the run was stopped before its start time.
            let isEmpty = journal.content.entries.isEmpty && stopped == nil
            if exceeds || isEmpty { try journal.finish() } else { try journal.sync() }
        } catch {
            _ = report.end(count, code: Ending.Code.later.rawValue, "")
            throw Ending(.later, "\(error); the command cannot continue without its journal")
        }
        let code: Ending.Code? = count.refused > 0 ? .refused : count.later > 0 ? .later : nil
        let summary = count.summary(seconds: Int64(watch.nanoseconds / 1_000_000_000))
        let stated = report.end(count, code: code?.rawValue ?? 0, summary)
        if let code { throw Ending(code, stated) }
    }

    // MARK: Giving up

    /// Cancels the uploads of an earlier run of the command; the files need not exist any more.
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
                throw Ending(.later, "this upload is running in another process; stop that first")
            }
            isThere = state.wasThere
            if isThere {
                try job(source, state, upload, interruption).cancel()
            } else {
                state.remove()
            }
        }
        guard let journal = try StateDirectory().take(request.command(method.rawValue)) else {
            throw Ending(.later, "this command is running in another process; stop that first")
        }
        do {
            let code = cancel(journal, upload)
            if code != .later { try journal.remove() }
            if let code { throw Ending(code, nil) }
        } catch let error as SystemError {
            throw Ending(error, "check the file and its directory")
        }
        guard isThere || journal.wasThere else {
            throw Ending(.refused, "nothing to cancel: no such upload was begun here")
        }
    }

    /// Cancels all uploads of a journal, and reports each failure.
    ///
    /// - Returns: `later` if the user must run the command again; `refused` if an upload remains on the server without
    ///   local state; nil if all were cancelled.
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
                let end = error.mayWorkLater ? "" : ", but its local state is removed"
                Self.report("\(FilePath(text: key.path).shown): \(error.reason)\(end)")
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
