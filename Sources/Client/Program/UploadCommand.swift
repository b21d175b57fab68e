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
        help: ArgumentHelp("The method.", valueName: "method"),
        transform: reading("is no method to upload with.") { text in
            HTTPRequest.Method(text).flatMap { [.get, .head].contains($0) ? nil : $0 }
        }
    )
    var method = HTTPRequest.Method.post

    @OptionGroup var options: TransferOptions

    @Option(
        help: ArgumentHelp(
            "careful: an empty request first, also for small files; optimistic: one round trip less; "
                + "plain: one ordinary request. Without it careful, and plain below 1MiB.",
            valueName: "way"
        )
    )
    var creation: Creation?

    @Option(
        help: ArgumentHelp(
            "The interop version of the draft that is named, 3 to 10, or none.",
            valueName: "version"
        ),
        transform: { text in
            if text == "none" { return Interop.none }
            guard let version = Int(digits: text), (3...10).contains(version) else {
                throw ValidationError("'\(text)' is no version; write 3 to 10, or none.")
            }
            return .version(version)
        }
    )
    var interop: Interop = .version(10)

    @Flag(help: "Digest the file before (SHA-256), so that the server can verify it.")
    var digest = false

    @Flag(help: "A stream gives the same bytes as the last time: go on with it.")
    var sameStream = false

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
        if let source = try UploadSources.one(request) { return try run(source, interruption) }
        let sources = try UploadSources(request)
        for sentence in sources.leftOut { Self.tell("left out \(sentence)") }
        for sentence in sources.failures { Self.tell(sentence) }
        var code: Ending.Code? = sources.failures.isEmpty ? nil : .refused
        for source in sources.files {
            do { try run(source, interruption) } catch let ending as Ending {
                Self.tell("\(source.shown): \(ending.sentence)")
                code = code == .refused || ending.code != .later ? .refused : .later
            }
        }
        if let code { throw ExitCode(code.rawValue) }
    }

    private func run(_ source: UploadSource, _ interruption: Interruption) throws {
        let upload = try libraryOptions()
        let states = try StateDirectory()
        let fresh = TransferState(
            .upload,
            url: source.url,
            file: source.key,
            method: method.rawValue
        )
        guard let state = try states.take(fresh) else {
            throw Ending(.later, "this upload is under way already, by another process")
        }
        var run = UploadJob(
            source: source,
            file: state,
            options: upload,
            report: ProgressReport(source.name, options.progress),
            interruption: interruption
        )
        if options.cancel { return try run.cancel() }
        try run.begin(
            notBefore: options.notBefore,
            withDigest: digest,
            isSameStream: sameStream
        )
        try run.perform()
    }

    private func libraryOptions() throws -> Upload.Options {
        var upload = Upload.Options()
        upload.method = method
        upload.fields = try options.fields()
        upload.connection = try options.connection()
        upload.allowsOtherOrigin = otherOrigin
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
