// The URLs of files below the URL of the command line.
//
// Pure. The invariant: a name becomes one segment of the path, with any bytes.

import SpoolgateTextFormats

struct TargetURL: Sendable, Equatable {
    /// The URL as given.
    let text: String
    private let path: Substring
    /// The query and the fragment.
    private let rest: Substring

    init(_ text: String) {
        self.text = text
        // Compares bytes, because a combining mark would hide the `?` or `#` before it.
        let end = text.utf8.firstIndex { "?#".utf8.contains($0) } ?? text.endIndex
        path = text[..<end]
        rest = text[end...]
    }

    /// Whether the path ends with a slash, so that the file's name is appended.
    var isDirectory: Bool { path.utf8.last == UInt8(ascii: "/") }

    /// Returns the URL of a file below this URL; a query stays after the path.
    ///
    /// The URL is absolute. `segments` are the names in the file's path, as bytes; all bytes are percent-encoded unless
    /// they are unreserved (RFC 3986, §2.3).
    func url(of segments: [[UInt8]]) -> String {
        let names = segments.map { PercentText.encode($0) }.joined(separator: "/")
        return path + (isDirectory ? "" : "/") + names + rest
    }
}
