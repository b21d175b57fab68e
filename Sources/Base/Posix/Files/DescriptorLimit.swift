// The limit on open descriptors, and their number.

import Glibc

/// The process's limit on open descriptors (RLIMIT_NOFILE).
package enum DescriptorLimit {
    /// Raises the soft limit on open descriptors to the hard limit.
    ///
    /// - Returns: the new soft limit. If the limit cannot be read, 1,024, which every system allows.
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

    /// The number of this process's open descriptors, or 0 if unknown.
    package static var open: Int {
        guard let names = try? Directory(path: "/proc/self/fd").names() else { return 0 }
        // Two of them are this function's own.
        return max(0, names.count - 2)
    }
}
