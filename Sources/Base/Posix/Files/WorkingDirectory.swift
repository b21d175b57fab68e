// Relative paths, made absolute, and the one path of a file that several lead to.

import Glibc

/// The directory that relative paths begin in.
package enum WorkingDirectory {
    /// A path that stays the same when the working directory changes: an absolute one as it is, another
    /// one behind the working directory's, and as it is where that has no name any more.
    package static func absolute(_ path: String) -> String {
        guard !path.hasPrefix("/"), let name = getcwd(nil, 0) else { return path }
        defer { free(name) }
        let directory = String(cString: name)
        return directory.hasSuffix("/") ? directory + path : "\(directory)/\(path)"
    }

    /// The one path of a name, whatever leads to its directory: no links, `.` or `..` in it.
    ///
    /// - Parameters:
    ///   - path: of a file that is there or not.
    ///   - followsLast: whether a link as the last name is followed, too, to what is there.
    /// - Returns: the path; `absolute(path)` if its directory is not there.
    package static func canonical(_ path: String, followsLast: Bool) -> String {
        if followsLast, let whole = resolved(path) { return whole }
        let bytes = Array(path.utf8)
        let slash = bytes.lastIndex(of: UInt8(ascii: "/"))
        let name = String(decoding: bytes[(slash.map { $0 + 1 } ?? 0)...], as: UTF8.self)
        // Such a name says of itself nothing of the file.
        if ["", ".", ".."].contains(name) { return resolved(path) ?? absolute(path) }
        let directory = slash.map { String(decoding: bytes[...$0], as: UTF8.self) } ?? "."
        guard let directory = resolved(directory) else { return absolute(path) }
        return directory.hasSuffix("/") ? directory + name : "\(directory)/\(name)"
    }

    private static func resolved(_ path: String) -> String? {
        guard let path = realpath(path, nil) else { return nil }
        defer { free(path) }
        return String(cString: path)
    }
}
