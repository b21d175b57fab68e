// Relative paths, as a person types them.

import Glibc

/// The directory that relative paths count from.
package enum WorkingDirectory {
    /// A path that stays the same when the working directory changes: an absolute one as it is, another
    /// one behind the working directory's, and as it is where that has no name any more.
    package static func absolute(_ path: String) -> String {
        guard !path.hasPrefix("/"), let name = getcwd(nil, 0) else { return path }
        defer { free(name) }
        let directory = String(cString: name)
        return directory.hasSuffix("/") ? directory + path : "\(directory)/\(path)"
    }
}
