// The files that a command line names, and the URL of each.
//
// The invariants: no two files have the same URL unless the user requests it, and every file that is not sent is
// reported.

import Glibc
import SpoolgatePosix
import SpoolgateTextFormats

struct UploadSources {
    struct Request: Sendable {
        /// The files and directories as given.
        var paths: [FilePath]
        /// The path of the list of files (`--files-from`); nil if there is none.
        var list: FilePath?
        /// Whether names in the list end with a zero byte, not a newline.
        var isNull = false
        var url: TargetURL
        var isFollowing = false
        /// Whether each file is sent to the URL as given (`--no-name`).
        var isExact = false

        /// Whether the arguments name exactly one file, stream or directory.
        var isForOne: Bool { list == nil && paths.count == 1 }
        var isForStandardInput: Bool { isForOne && paths[0].bytes == [UInt8(ascii: "-")] }
        func command(_ method: String) -> JournalCommand {
            var arguments = paths.map(\.absolute.normal.text)
            if let list {
                let isStandard = list.bytes == [UInt8(ascii: "-")]
                let place = FilePath(text: ".").absolute.normal.text
                arguments += ["--files-from", isStandard ? "-" : list.absolute.normal.text, place]
            }
            if isFollowing { arguments.append("--follow") }
            if isExact { arguments.append("--no-name") }
            return JournalCommand(url: url.text, method: method, arguments: arguments)
        }
        var urlOfOne: String {
            guard url.isDirectory, !isExact, !isForStandardInput, let name = paths.first?.name
            else { return url.text }
            return url.url(of: [name])
        }
    }

    private(set) var files: [UploadSource] = []
    /// The skipped paths, each with the reason.
    private(set) var leftOut: [String] = []
    /// The arguments and directories that cannot be sent, each with the reason.
    private(set) var failures: [String] = []

    private var seen: Set<FilePath> = []
    private var taken: [ExactText: String] = [:]
    private var collision: String?
    private let request: Request

    /// Returns the single file or stream of the command line, or nil if it names a directory or several files.
    ///
    /// - Throws: `Ending` if the file cannot be read.
    static func one(_ request: Request) throws(Ending) -> UploadSource? {
        guard request.isForOne else { return nil }
        guard !request.isForStandardInput else {
            return UploadSource(standardInputTo: request.url.text)
        }
        let path = request.paths[0]
        do throws(SystemError) {
            let seen = try TreeFileKind.of(path, isFollowing: true)
            if seen.kind == .directory { return nil }
            guard path.withPointer({ access($0, R_OK) }) == 0 else {
                throw SystemError("open", on: path.shown)
            }
            let isStream = seen.kind != .regular
            let url = request.urlOfOne
            return UploadSource(path, to: url, size: seen.size, isStream: isStream)
        } catch {
            let error = SystemError(call: "open", subject: path.shown, errno: error.errno)
            throw Ending(.usage, "\(error); name a file that can be read")
        }
    }

    /// Finds the files to send.
    ///
    /// Throws if the list cannot be read, or if two files have the same URL.
    init(_ request: Request) throws(Ending) {
        self.request = request
        for path in request.paths { add(argument: path) }
        if let list = request.list {
            for path in try FileList.read(list, isNull: request.isNull) { add(listed: path) }
        }
        if let collision { throw Ending(.usage, collision) }
    }

    private mutating func add(argument path: FilePath) {
        guard let seen = look(at: path) else { return }
        switch seen.kind {
        case .directory: walk(path)
        case .special(let what):
            failures.append(
                "\(path.shown) is \(what); only files and directories can be sent together"
            )
        case .regular, .link: add(path, path.name.map { [$0] }, seen.size)
        }
    }

    private mutating func add(listed path: FilePath) {
        guard let seen = look(at: path) else { return }
        switch seen.kind {
        case .directory: leftOut.append("\(path.shown): a directory; a list can only name files")
        case .special(let what): leftOut.append("\(path.shown): \(what)")
        case .regular, .link:
            let isBelow = !path.isAbsolute && !path.segments.contains(Array("..".utf8))
            add(path, isBelow ? path.segments : path.name.map { [$0] }, seen.size)
        }
    }

    private mutating func look(at path: FilePath) -> TreeFileKind.Evidence? {
        do throws(SystemError) { return try TreeFileKind.of(path, isFollowing: true) } catch {
            failures.append("\(error); name an existing file")
            return nil
        }
    }

    private mutating func walk(_ directory: FilePath) {
        var found: [(FilePath, [[UInt8]], Int64)] = []
        var (leftOut, failures): ([String], [String]) = ([], [])
        TreeWalk(isFollowing: request.isFollowing) {
            found.append(($0, $1, $2))
        } leftOut: {
            leftOut.append("\($0.shown): \($1)")
        } failed: {
            failures.append("\($0); it is not sent")
        }.walk(directory)
        for (path, below, size) in found { add(path, below, size) }
        self.leftOut += leftOut
        self.failures += failures
    }

    private mutating func add(_ path: FilePath, _ below: [[UInt8]]?, _ size: Int64) {
        guard let below, !below.isEmpty else {
            failures.append("\(path.shown) has no name to append to the URL; name the file itself")
            return
        }
        guard seen.insert(path.absolute).inserted else { return }
        let url = request.isExact ? request.url.text : request.url.url(of: below)
        if !request.isExact, let other = taken.updateValue(path.shown, forKey: ExactText(url)) {
            collision =
                collision
                ?? "\(other) and \(path.shown) would both be sent to \(url); use two commands"
        }
        files.append(UploadSource(path, to: url, size: size))
    }
}
