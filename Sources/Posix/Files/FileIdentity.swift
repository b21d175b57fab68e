// Which file a path leads to, whatever the path is called.

import Glibc

/// The device and the number of a file.
package struct FileIdentity: Equatable, Sendable {
    private let device: UInt64
    private let node: UInt64

    /// Looks at `path`; nil where nothing is there, or nothing that this process may see.
    package init?(of path: String, followingLinks: Bool = true) {
        var status = Glibc.stat()
        let isThere = followingLinks ? stat(path, &status) : lstat(path, &status)
        guard isThere == 0 else { return nil }
        device = UInt64(status.st_dev)
        node = UInt64(status.st_ino)
    }
}
