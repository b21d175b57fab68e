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
            spoolgate-upload [<options>] <file> <url>
            spoolgate-upload [<options>] - <url>
            spoolgate-upload --cancel [<options>] <file> <url>
            spoolgate-upload --list
            """,
        discussion: """
            The same command again goes on where the last one ended. The answer goes to standard output. \
            Exits 0 when the upload was taken, 1 when it was refused, 2 for a wrong command line, 75 \
            when the same command is to be run again. See spoolgate-upload(1).
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

    @Argument(help: "What is sent; - is standard input.", completion: .file())
    var file: String?

    @Argument(
        help: "Where it is sent to: https://uploads.example.org/files/a.tar.",
        transform: transferURL
    )
    var url: String?

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
            guard file == nil, url == nil else { throw ValidationError("--list takes no file.") }
            return
        }
        guard let file, url != nil else {
            throw ValidationError("A file, or -, and a URL are needed.")
        }
        if digest, file == "-" {
            throw ValidationError("--digest: of a stream nobody knows it before it ends.")
        }
        if creation == .plain, file == "-" {
            throw ValidationError("A stream is not sent by one ordinary request.")
        }
    }

    func run() throws {
        if options.list { return try TransferListing.tell(.upload) }
        guard let file, let url else { return }
        let interruption = try Interruption()
        let source = try UploadSource(file)
        let upload = try libraryOptions()
        let states = try StateDirectory()
        let fresh = TransferState(.upload, url: url, file: source.path, method: method.rawValue)
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

/// What is uploaded.
struct UploadSource {
    /// Its absolute path, or `-`.
    let path: String
    /// What it is called.
    let name: String
    /// Whether it cannot be read again from its beginning.
    let isStream: Bool

    init(_ file: String) throws(Ending) {
        guard file != "-" else {
            (path, name, isStream) = (file, "standard input", true)
            return
        }
        var status = stat()
        guard stat(file, &status) == 0, access(file, R_OK) == 0 else {
            throw Ending(.usage, "\(SystemError("open", on: file)); name a file that can be read")
        }
        guard status.st_mode & S_IFMT != S_IFDIR else {
            throw Ending(.usage, "\(file) is a directory; send what tar -c makes of it, by a pipe")
        }
        name = file.split(separator: "/").last.map(String.init) ?? file
        isStream = status.st_mode & S_IFMT != S_IFREG
        // All paths of a file are one upload; a path of an open file, such as /dev/fd/3, leads nowhere by another name.
        path =
            isStream
            ? WorkingDirectory.absolute(file)
            : WorkingDirectory.canonical(file, followsLast: true)
    }

    /// The library's body.
    var body: Upload.Body { path == "-" ? .descriptor(STDIN_FILENO) : .file(path) }
}
