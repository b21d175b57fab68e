// The machine's name.

import Glibc

/// The machine's name.
package enum HostName {
    /// Usually without a domain; `localhost` if it cannot be read.
    package static var current: String {
        var name = [CChar](repeating: 0, count: 256)
        guard gethostname(&name, name.count - 1) == 0 else { return "localhost" }
        return String(decoding: name.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
    }
}
