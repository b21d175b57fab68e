// The way to a file or socket from the root, to check whether another process may access it.
//
// Only owner, group and mode count; access control lists are ignored.

import SpoolgatePosix

/// A path and the permissions of each directory on it.
package struct PathWay: Sendable, Equatable {
    package var path: String
    /// Each directory from the root on, then the file; empty if the path is not accessible.
    var facts: [PathFacts] = []
    /// The reason why the path is not accessible, if any.
    var obstacle: String?
    var isMissing = false

    init(path: String, facts: [PathFacts], obstacle: String? = nil, isMissing: Bool = false) {
        self.path = path
        self.facts = facts
        self.obstacle = obstacle
        self.isMissing = isMissing
    }

    /// Inspects an absolute path.
    package init(to path: String) {
        self.init(path: path, facts: [])
        do throws(PathObstacle) {
            var way = [try PathAccess.require([], to: path)]
            var directory = PathAccess.parent(of: way[0].path)
            while true {
                way.insert(try PathAccess.require([], to: directory), at: 0)
                if directory == "/" { break }
                directory = PathAccess.parent(of: directory)
            }
            facts = way
        } catch {
            if case .missing = error { isMissing = true }
            obstacle = "\(path) \(Self.words(error, on: path))"
        }
    }

    private static func words(_ obstacle: PathObstacle, on way: String) -> String {
        switch obstacle {
        case .missing(let path, _):
            path == way ? "does not exist" : "does not exist (\(path) is missing)"
        case .notDirectory(let facts): "is below \(facts.path), which is not a directory"
        case .denied(let facts, _, _):
            "cannot be accessed: \(facts.path) (\(facts.description))"
        case .readOnly(let facts): "is on a read-only file system: \(facts.path)"
        case .failed(let error): "cannot be accessed: \(error)"
        }
    }

    var last: PathFacts? { facts.last }

    /// Returns the first directory that a process may not enter, if any.
    func closed(to process: Credentials) -> PathFacts? {
        facts.dropLast().first { !process.has(.search, to: $0) }
    }
}
