// The source of one upload: a file or a stream.

import Glibc
import ResumableUpload
import SpoolgatePosix

struct UploadSource: Sendable {
    /// The absolute path of the source; nil for standard input.
    let path: FilePath?
    /// The name on the progress line.
    let name: String
    /// The name in messages: the path as given.
    let shown: String
    let url: String
    /// Whether the source cannot be read again from its beginning.
    let isStream: Bool
    /// The size in bytes when the command began; 0 for a stream.
    let size: Int64

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

    var key: String { path?.text ?? "-" }

    var body: Upload.Body { path.map { .file(bytes: $0.bytes) } ?? .descriptor(STDIN_FILENO) }

    /// The file's present fingerprint, as in the library's tokens; nil if it cannot be read.
    var fingerprint: String? { path.flatMap { Upload.fingerprint(ofFile: $0.bytes) } }
}
