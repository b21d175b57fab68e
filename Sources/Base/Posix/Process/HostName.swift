// The name of the machine, as the kernel has it.

import Glibc

/// The machine's name.
package enum HostName {
    /// The name now, without a domain on most machines; `localhost` if the kernel does not say.
    package static var current: String {
        var name = [CChar](repeating: 0, count: 256)
        guard gethostname(&name, name.count - 1) == 0 else { return "localhost" }
        return String(decoding: name.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
    }
}
