// Where files go below a URL.
//
// Pure. The invariant: a name becomes one segment of the path, whatever its bytes are.

import SpoolgateTextFormats

/// The URL of a command line, taken apart where names are added.
struct TargetURL: Sendable, Equatable {
    /// As it was given.
    let text: String
    private let path: Substring
    /// From the query on.
    private let rest: Substring

    /// Takes a URL of HTTP.
    init(_ text: String) {
        self.text = text
        // Bytes, not characters: a combining mark would hide the sign.
        let end = text.utf8.firstIndex { "?#".utf8.contains($0) } ?? text.endIndex
        path = text[..<end]
        rest = text[end...]
    }

    /// Whether its path ends with a slash, so that a file's name is added.
    var isDirectory: Bool { path.utf8.last == UInt8(ascii: "/") }

    /// The URL of a file below it: a query stays behind the path.
    ///
    /// - Parameter segments: the file's path below it, one name each, as bytes.
    /// - Returns: an absolute URL; every byte of a name that is not unreserved is percent-encoded (RFC 3986, §2.3).
    func url(of segments: [[UInt8]]) -> String {
        let names = segments.map { PercentText.encode($0) }.joined(separator: "/")
        return path + (isDirectory ? "" : "/") + names + rest
    }
}
