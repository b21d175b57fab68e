// Which run of the kernel this is: what tells the death of a process from a power cut.
//
// After the death of a process the kernel still has every byte; after a power cut only what was made
// durable can be trusted. A reboot in good order is taken for a power cut: nothing tells them apart.

import Crypto
import Posix

/// The identity of the running kernel.
enum BootIdentity {
    /// The kernel's own random identity of this boot (random(4)).
    ///
    /// - Throws: `.bootUnknown` where it cannot be read.
    static func current() throws(SpoolError) -> String {
        do throws(SystemError) {
            let text = try TextFile.read("/proc/sys/kernel/random/boot_id", limit: 256)
            return String(text.prefix { !$0.isWhitespace })
        } catch {
            throw .bootUnknown(error)
        }
    }
}

/// Names in `tmp/` that no other process or thread uses.
enum TemporaryName {
    /// A new name.
    static func next() -> String { String(RandomBits.next(), radix: 32) }
}
