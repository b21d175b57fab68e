// Directories for one test.

import Foundation

/// A new directory that is removed with the value.
package final class ScratchDirectory: Sendable {
    /// Its path, without a slash at its end.
    package let path: String
    /// Its path.
    package var url: URL { URL(filePath: path, directoryHint: .isDirectory) }
    /// Every name in it, hidden ones included.
    package var names: [String] {
        (try? FileManager.default.contentsOfDirectory(atPath: path).sorted()) ?? []
    }

    /// The parent of directories in memory; that of temporary files if the system has no file system there.
    package static let memory =
        FileManager.default.isWritableFile(atPath: "/dev/shm")
        ? "/dev/shm" : NSTemporaryDirectory()

    /// Makes one.
    ///
    /// - Parameters:
    ///   - parent: where; it must be there.
    ///   - name: what its name begins with.
    /// - Throws: what making it throws.
    package init(in parent: String = NSTemporaryDirectory(), _ name: String = "test") throws {
        let unique = "\(name)-\(UUID().uuidString.prefix(13))"
        path = (parent as NSString).appendingPathComponent(unique)
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: false)
    }

    deinit { try? FileManager.default.removeItem(atPath: path) }

    /// The path of a file in it.
    package func file(_ name: String) -> String {
        (path as NSString).appendingPathComponent(name)
    }
}
