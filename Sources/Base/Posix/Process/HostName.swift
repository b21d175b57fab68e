// The machine's name.

import Glibc

/// Reads the machine's name.
package enum HostName {
    /// The machine's name, usually without a domain, or `localhost` if the name cannot be read.
    package static var current: String {
        var name = [CChar](repeating: 0, count: 256)
        guard gethostname(&name, name.count - 1) == 0 else { return "localhost" }
        return String(decoding: name.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
    }
}
