// The way to a file or socket, as another process meets it: the directories from the root on, and the file itself.
//
// It only looks. The rights of a process are judged by owner, group and mode alone: access control lists are not read.

import SpoolgatePosix

/// The way to a path.
package struct PathWay: Sendable, Equatable {
    /// The path.
    package var path: String
    /// The directories on the way, from the root on, and the file at its end; empty if the path leads nowhere.
    var facts: [PathFacts] = []
    /// Why it leads nowhere; nil: it does not, or that is not known.
    var obstacle: String?
    /// Whether nothing has this path.
    var isMissing = false

    /// Makes it of its parts.
    init(path: String, facts: [PathFacts], obstacle: String? = nil, isMissing: Bool = false) {
        self.path = path
        self.facts = facts
        self.obstacle = obstacle
        self.isMissing = isMissing
    }

    /// Looks at the way to an absolute path.
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

    /// The file at the end of the way; nil if the path leads nowhere.
    var last: PathFacts? { facts.last }

    /// The first directory on the way that a process may not pass; nil: it may pass all.
    func closed(to process: Credentials) -> PathFacts? {
        facts.dropLast().first { !process.has(.search, to: $0) }
    }
}
