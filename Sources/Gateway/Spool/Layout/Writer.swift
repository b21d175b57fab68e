// The writer of a state, which distinguishes the crash of a process from a power failure.
//
// After a crash of a process the kernel still has every byte; after a power failure only durable bytes can be trusted.
// A clean reboot counts as a power failure, because the two cannot be distinguished; a clean stop makes everything
// durable before it (`UndurableUploads`). In a shared spool each process is a separate writer, because its crash may be
// the crash of its host, and a file system in user space can lose data without any reboot.

import SpoolgatePosix

/// The name of the writer of a state: the boot of the kernel, or in a shared spool the process.
enum Writer {
    /// Returns a new name for this process in a shared spool.
    static func process(on node: String) -> String { "\(node).\(TemporaryName.next())" }

    /// Returns the node in a writer's name, or nil if the name is not from a shared spool.
    static func node(of writer: String) -> String? {
        writer.firstIndex(of: ".").map { String(writer[..<$0]) }
    }

    /// Returns the kernel's random identity of this boot (random(4)); throws `.bootUnknown` if it cannot be read.
    static func boot() throws(SpoolError) -> String {
        do throws(SystemError) {
            let text = try TextFile.read("/proc/sys/kernel/random/boot_id", limit: 256)
            return String(text.prefix { !$0.isWhitespace })
        } catch {
            throw .bootUnknown(error)
        }
    }

    /// Returns the writer's name: the first 16 digits of a boot identity.
    static func name(of boot: String) -> String { String(boot.filter { $0 != "-" }.prefix(16)) }
}
