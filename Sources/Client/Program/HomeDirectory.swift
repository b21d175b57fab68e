// Where a user's own files are.

import Glibc

/// The home directory of this process's user.
enum HomeDirectory {
    /// `HOME`, else what the system's list of users says (getpwuid(3)); nil: neither says anything.
    static func path(_ environment: (String) -> String?) -> String? {
        if let home = environment("HOME"), !home.isEmpty { return home }
        guard let entry = getpwuid(geteuid()), let home = entry.pointee.pw_dir, home.pointee != 0
        else { return nil }
        return String(cString: home)
    }
}
