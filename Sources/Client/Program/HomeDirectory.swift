// The user's home directory.

import Glibc

enum HomeDirectory {
    /// Returns `HOME`, or else the directory in the user database (getpwuid(3)); nil if neither is known.
    static func path(_ environment: (String) -> String?) -> String? {
        if let home = environment("HOME"), !home.isEmpty { return home }
        guard let entry = getpwuid(geteuid()), let home = entry.pointee.pw_dir, home.pointee != 0
        else { return nil }
        return String(cString: home)
    }
}
