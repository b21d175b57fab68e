// Relative paths, as people type them.

import Glibc

/// The working directory.
package enum WorkingDirectory {
    /// Makes a path absolute, so that the path no longer depends on the working directory.
    ///
    /// If the working directory was removed, a relative path is returned unchanged.
    package static func absolute(_ path: String) -> String {
        guard !path.hasPrefix("/"), let name = getcwd(nil, 0) else { return path }
        defer { free(name) }
        let directory = String(cString: name)
        return directory.hasSuffix("/") ? directory + path : "\(directory)/\(path)"
    }
}
