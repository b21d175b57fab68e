// How many descriptors this process may have, and has.

import Glibc

/// The process's limit of descriptors (RLIMIT_NOFILE).
package enum DescriptorLimit {
    /// Raises the limit in force to the most that this process may set, and gives what it is then.
    ///
    /// - Returns: the limit; where it cannot be read, the least that every system gives (1,024).
    package static func raise() -> Int {
        let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
        var limit = rlimit()
        guard getrlimit(resource, &limit) == 0 else { return 1024 }
        if limit.rlim_cur < limit.rlim_max {
            var raised = limit
            raised.rlim_cur = limit.rlim_max
            if setrlimit(resource, &raised) == 0 { limit = raised }
        }
        return Int(clamping: limit.rlim_cur)
    }

    /// Descriptors that are open now; 0 where that cannot be seen.
    package static var open: Int {
        guard let directory = opendir("/proc/self/fd") else { return 0 }
        defer { closedir(directory) }
        var count = 0
        while readdir(directory) != nil { count += 1 }
        // Itself and its parent are named too, and the directory that is read.
        return max(0, count - 3)
    }
}
