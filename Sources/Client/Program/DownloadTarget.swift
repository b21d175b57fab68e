// The target of `spoolgate-download`.
//
// Invariant: all names of one file give the same target.

import Glibc
import ResumableUpload
import SpoolgatePosix
import SpoolgateTextFormats

struct DownloadTarget: Equatable {
    /// The canonical path of the file, or `-`.
    let path: String
    /// The target's name in messages.
    let name: String
    /// Whether the target is written to directly and cannot be resumed: standard output, a device, a FIFO.
    let isDirect: Bool

    /// Reads the argument `file`.
    ///
    /// If `file` is a directory, the target in it is named after the last segment of `url`.
    ///
    /// A path that ends in `/` must be a directory.
    init(_ file: String, for url: String) throws(Ending) {
        if file == "-" {
            (path, name, isDirect) = (file, "download", true)
            return
        }
        if Download.writesDirectly(to: file) {
            (path, name, isDirect) = (WorkingDirectory.absolute(file), file, true)
            return
        }
        let kind = FileKind(of: file)
        guard file.utf8.last == UInt8(ascii: "/") || kind == .directory else {
            path = FilePath(text: file).canonical(followsLast: false).text
            name = file.split(separator: "/").last.map(String.init) ?? file
            isDirect = false
            return
        }
        guard kind == .directory else {
            throw Ending(
                .usage,
                "\(file) is not a directory; create it, or remove the / at the end"
            )
        }
        name = try Self.lastSegment(of: url)
        let directory = FilePath(text: file).canonical(followsLast: true).text
        path = directory.hasSuffix("/") ? directory + name : "\(directory)/\(name)"
        isDirect = Download.writesDirectly(to: path)
        guard FileKind(of: path) != .directory else {
            throw Ending(.usage, "\(path) is a directory; name a file in it")
        }
    }

    /// Returns the last segment of a URL's path, percent-decoded.
    ///
    /// - Throws: `Ending` if the segment is not a valid file name.
    static func lastSegment(of url: String) throws(Ending) -> String {
        let bytes = Array(url.utf8)
        let end = bytes.firstIndex { "?#".utf8.contains($0) } ?? bytes.endIndex
        // The path begins at the first slash after the scheme's slashes.
        let authority = url.firstRange(of: "://").map {
            url.utf8.distance(from: url.startIndex, to: $0.upperBound)
        }
        let path = bytes[min(authority ?? 0, end)..<end]
        let slash = path.lastIndex(of: UInt8(ascii: "/"))
        let decoded = PercentText.decode(slash.map { path[($0 + 1)...] } ?? [])
        let name = String(validating: decoded, as: UTF8.self)
        guard let name, !name.isEmpty, name != ".", name != "..",
            !decoded.contains(UInt8(ascii: "/")),
            !name.unicodeScalars.contains(where: { $0.properties.generalCategory == .control })
        else {
            throw Ending(.usage, "\(url) does not end with a valid file name; name the file too")
        }
        return name
    }
}
