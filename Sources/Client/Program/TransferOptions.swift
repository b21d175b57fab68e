// The options of both commands.

import ArgumentParser
import Glibc
import HTTPTypes
import ResumableUpload
import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol

enum ProgressForm: String, CaseIterable, ExpressibleByArgument {
    /// A redrawn line, but only if standard error is a terminal.
    case auto
    /// One JSON object on each line.
    case json
    case none
}

/// If several flags are given, the last one applies, as with curl(1).
enum HTTPVersion: EnumerableFlag {
    case http1, http2

    static func name(for value: HTTPVersion) -> NameSpecification {
        value == .http1 ? .customLong("http1.1") : .customLong("http2")
    }

    static func help(for value: HTTPVersion) -> ArgumentHelp? {
        value == .http1
            ? "Use HTTP/1.1."
            : "Use HTTP/2 if the server offers it; slower for large files over long distances."
    }
}

struct TransferOptions: ParsableArguments {
    @Option(
        name: [.customShort("H"), .customLong("header")],
        help: ArgumentHelp("Send a field with each request; may be repeated.", valueName: "field"),
        transform: reading("is not a field; use 'Name: value'.") { HTTPField(line: $0) }
    )
    var header: [HTTPField] = []

    @Option(
        help: ArgumentHelp(
            "Read fields from a file, one on each line, to keep them out of process listings.",
            valueName: "file"
        ),
        completion: .file()
    )
    var headerFile: [String] = []

    @Flag(help: "Read the host's user and password from ~/.netrc.")
    var netrc = false

    @Option(help: ArgumentHelp("Read them from this file.", valueName: "file"), completion: .file())
    var netrcFile: String?

    @Option(
        help: ArgumentHelp(
            "Trust the certificate authorities in this PEM file instead of the system's.",
            valueName: "file"
        ),
        completion: .file()
    )
    var cacert: String?

    @Option(
        help: ArgumentHelp("PEM file of a client certificate.", valueName: "file"),
        completion: .file()
    )
    var cert: String?

    @Option(
        help: ArgumentHelp("PEM file of its key, if not in the same file.", valueName: "file"),
        completion: .file()
    )
    var key: String?

    @Flag(exclusivity: .chooseLast)
    var http = HTTPVersion.http1

    @Option(
        help: ArgumentHelp(
            "Give up after this time without progress: a number and ms, s, m, h or d. (default: 1h)",
            valueName: "time"
        ),
        transform: reading("is not a duration; use 90s, 30m or 1h.") { DurationText.read($0) }
    )
    var retryFor: Duration = .seconds(3600)

    @Option(
        help: ArgumentHelp(
            "The maximum rate of the whole command in bytes per second: a number, also with K, M or G for KiB, MiB "
                + "or GiB. (default: no limit)",
            valueName: "size"
        ),
        transform: reading("is not a size; use 500K or 5M.") { text in
            ByteSize.readShort(text).flatMap { $0 > 0 ? $0 : nil }
        }
    )
    var limitRate: Int64 = 0

    @Option(
        help: ArgumentHelp(
            "Wait, and start at 22:00, at 2026-11-23T22:00 or in 2h. (default: at once)",
            valueName: "time"
        ),
        transform: reading(
            "is not a time; use 22:00, 2026-11-23T22:00, 2026-11-23T22:00:00Z or 2h."
        ) { StartTime.read($0) }
    )
    var notBefore: WallTime?

    @Option(
        help: ArgumentHelp(
            "Progress on standard error; auto: on a terminal only.",
            valueName: "form"
        )
    )
    var progress: ProgressForm = .auto

    @Flag(help: "List unfinished transfers.")
    var list = false

    @Flag(help: "Cancel the transfer that the same command began.")
    var cancel = false

    func validate() throws {
        let files = [cacert, cert, key, netrcFile].compactMap { $0 } + headerFile
        for file in files where access(file, R_OK) != 0 {
            throw ValidationError("\(SystemError("open", on: file)).")
        }
        if netrc || netrcFile != nil, header.contains(where: { $0.name == .authorization }) {
            throw ValidationError("--netrc and an Authorization field exclude each other.")
        }
    }

    func fields() throws -> HTTPFields {
        var fields = HTTPFields()
        for path in headerFile {
            let text: String
            do throws(SystemError) { text = try TextFile.read(path, limit: 1 << 20) } catch {
                throw Ending(.usage, "\(error); check --header-file")
            }
            let lines = text.split(omittingEmptySubsequences: false, whereSeparator: \.isNewline)
            for (index, line) in lines.enumerated() where !line.isEmpty {
                // The line may be a secret, so it is not shown.
                guard let field = HTTPField(line: String(line)) else {
                    throw Ending(
                        .usage,
                        "line \(index + 1) of \(path) is not a field; use 'Name: value'"
                    )
                }
                fields.append(field)
            }
        }
        for field in header { fields.append(field) }
        return fields
    }

    func connection() throws -> Transfer.Connection {
        var connection = Transfer.Connection()
        connection.version = http == .http1 ? .http1 : .http2
        connection.retryFor = retryFor
        connection.rateLimit = limitRate
        connection.certificateAuthority = cacert
        connection.clientCertificate = cert
        connection.clientKey = key
        if let netrcFile {
            connection.credentials = .netrc(path: netrcFile)
        } else if netrc {
            guard let home = HomeDirectory.path(Listener.processEnvironment) else {
                throw Ending(
                    .usage,
                    "--netrc: this user has no home directory; name the file with --netrc-file"
                )
            }
            connection.credentials = .netrc(path: home + "/.netrc")
        }
        return connection
    }
}

/// Returns a parser that calls `read`.
///
/// If `read` returns nil, the parser's error message is the option's value and `fault`.
func reading<Value>(
    _ fault: String,
    _ read: @escaping @Sendable (String) -> Value?
) -> @Sendable (String) throws -> Value {
    { text in
        guard let value = read(text) else { throw ValidationError("'\(text)' \(fault)") }
        return value
    }
}

func transferURL(_ text: String) throws -> String {
    let isWeb = ["http://", "https://"].contains { text.lowercased().hasPrefix($0) }
    guard isWeb, !text.hasControlCharacters else {
        throw ValidationError("'\(text.forTerminal)' is not an http or https URL.")
    }
    guard !text.utf8.contains(UInt8(ascii: " ")) else {
        throw ValidationError("'\(text.forTerminal)' contains a space; use %20.")
    }
    return text
}
