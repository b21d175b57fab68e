// Who writes a state: what tells the death of a process from a power cut.
//
// After the death of a process the kernel still has every byte; after a power cut only what was made
// durable can be trusted. A reboot in good order is taken for a power cut: nothing tells them apart. In a spool
// that several hosts share each process is a writer of its own: another's death may be its host's, and a file
// system in user space can lose what it had without any reboot.

import SpoolgatePosix

/// Who writes states: in a spool that belongs to one host the running kernel, in a shared one the process.
enum Writer {
    /// This process, on a node of a shared spool.
    static func process(on node: String) -> String { "\(node).\(TemporaryName.next())" }

    /// The node of a writer in a shared spool; nil for any other one.
    static func node(of writer: String) -> String? {
        writer.firstIndex(of: ".").map { String(writer[..<$0]) }
    }

    /// The kernel's own random identity of this boot (random(4)).
    ///
    /// - Throws: `.bootUnknown` where it cannot be read.
    static func boot() throws(SpoolError) -> String {
        do throws(SystemError) {
            let text = try TextFile.read("/proc/sys/kernel/random/boot_id", limit: 256)
            return String(text.prefix { !$0.isWhitespace })
        } catch {
            throw .bootUnknown(error)
        }
    }

    /// The first 16 digits of an identity of a boot.
    static func name(of boot: String) -> String { String(boot.filter { $0 != "-" }.prefix(16)) }
}
