// Identifies a file regardless of its path.

package import Glibc

/// The device and inode numbers of a file.
package struct FileIdentity: Hashable, Sendable {
    private let device: UInt64
    private let node: UInt64

    /// Reads the identity of the file at `path`; returns nil if the file is inaccessible.
    package init?(of path: String, followingLinks: Bool = true) {
        self.init { followingLinks ? stat(path, &$0) : lstat(path, &$0) }
    }

    /// Reads the identity of an open file; returns nil if the descriptor is invalid.
    package init?(of descriptor: Int32) { self.init { fstat(descriptor, &$0) } }

    private init?(_ look: (inout stat) -> Int32) {
        var status = stat()
        guard look(&status) == 0 else { return nil }
        self.init(status)
    }

    /// Takes the identity from a file's status.
    package init(_ status: stat) {
        device = UInt64(status.st_dev)
        node = UInt64(status.st_ino)
    }
}
