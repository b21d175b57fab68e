// Temporary directories for one test.

import Foundation

/// A new directory that is removed with the value.
package final class ScratchDirectory: Sendable {
    /// Without a trailing slash.
    package let path: String
    package var url: URL { URL(filePath: path, directoryHint: .isDirectory) }
    /// Including hidden ones.
    package var names: [String] {
        (try? FileManager.default.contentsOfDirectory(atPath: path).sorted()) ?? []
    }

    /// In memory, or the directory of temporary files if the system has none.
    package static let memory =
        FileManager.default.isWritableFile(atPath: "/dev/shm")
        ? "/dev/shm" : NSTemporaryDirectory()

    /// Creates a directory in `parent`, whose name begins with `name`.
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
