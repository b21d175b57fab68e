// What one upload sends: a file or a stream.

import Glibc
import ResumableUpload
import SpoolgatePosix

/// What is uploaded, and where to.
struct UploadSource: Sendable {
    /// The absolute path; nil: standard input.
    let path: FilePath?
    /// What it is called on the progress line.
    let name: String
    /// What it is called in a sentence: the path as it was given.
    let shown: String
    /// Where it is sent to.
    let url: String
    /// Whether it cannot be read again from its beginning.
    let isStream: Bool
    /// Bytes when it was looked at; 0 for a stream.
    let size: Int64

    /// A file, by its path as it was given.
    init(_ path: FilePath, to url: String, size: Int64 = 0, isStream: Bool = false) {
        self.size = size
        // All paths of a file are one upload; a path of an open one, such as /dev/fd/3, leads nowhere by another name.
        self.path = isStream ? path.absolute : path.canonical(followsLast: true)
        name = path.name.map { FilePath(bytes: $0).shown } ?? path.shown
        shown = path.shown
        self.url = url
        self.isStream = isStream
    }

    /// Standard input.
    init(standardInputTo url: String) {
        (path, name, shown, isStream) = (nil, "standard input", "standard input", true)
        self.url = url
        size = 0
    }

    /// The text that a state knows it by.
    var key: String { path?.text ?? "-" }

    /// The library's body.
    var body: Upload.Body { path.map { .file(bytes: $0.bytes) } ?? .descriptor(STDIN_FILENO) }

    /// What the file is recognised by now, as in the library's tokens; nil: it cannot be looked at.
    var fingerprint: String? { path.flatMap { Upload.fingerprint(ofFile: $0.bytes) } }
}
