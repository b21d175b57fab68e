// The source of one upload: a file or a stream.

import Glibc
import ResumableUpload
import SpoolgatePosix

/// The source of an upload, and its URL.
struct UploadSource: Sendable {
    /// The absolute path of the file; nil for standard input.
    let path: FilePath?
    /// The name on the progress line.
    let name: String
    /// The name in messages: the path as given.
    let shown: String
    let url: String
    /// Whether the source is a stream, which cannot be read again from its beginning.
    let isStream: Bool
    /// The size in bytes when the command began; 0 for a stream.
    let size: Int64

    /// Creates the source for a file, by its path as given.
    init(_ path: FilePath, to url: String, size: Int64 = 0, isStream: Bool = false) {
        self.size = size
        // All paths to a file are one upload. A path of an open file, such as /dev/fd/3, has no other valid name.
        self.path = isStream ? path.absolute : path.canonical(followsLast: true)
        name = path.name.map { FilePath(bytes: $0).shown } ?? path.shown
        shown = path.shown
        self.url = url
        self.isStream = isStream
    }

    init(standardInputTo url: String) {
        (path, name, shown, isStream) = (nil, "standard input", "standard input", true)
        self.url = url
        size = 0
    }

    /// The text that identifies the source in the state file.
    var key: String { path?.text ?? "-" }

    var body: Upload.Body { path.map { .file(bytes: $0.bytes) } ?? .descriptor(STDIN_FILENO) }

    /// The fingerprint of the file as it is now, as in the library's tokens; nil if the file cannot be read.
    var fingerprint: String? { path.flatMap { Upload.fingerprint(ofFile: $0.bytes) } }
}
