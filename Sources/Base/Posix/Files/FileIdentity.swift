// Which file a path leads to, whatever the path is called.

package import Glibc

/// The device and the number of a file.
package struct FileIdentity: Hashable, Sendable {
    private let device: UInt64
    private let node: UInt64

    /// Looks at `path`; nil where nothing is there, or nothing that this process may see.
    package init?(of path: String, followingLinks: Bool = true) {
        self.init { followingLinks ? stat(path, &$0) : lstat(path, &$0) }
    }

    /// Looks at an open file.
    package init?(of descriptor: Int32) { self.init { fstat(descriptor, &$0) } }

    private init?(_ look: (inout stat) -> Int32) {
        var status = stat()
        guard look(&status) == 0 else { return nil }
        self.init(status)
    }

    /// What a look at a file showed.
    package init(_ status: stat) {
        device = UInt64(status.st_dev)
        node = UInt64(status.st_ino)
    }
}
