// Page cache made available before a row fills it.
//
// If the host of a virtual machine reclaims free pages (free page reporting, ballooning), the first touch of a page
// costs a random row several times the write. So the benchmark fills the page cache as the row will, in pieces as large
// as nginx's, and frees it at once. On hardware this has no effect.

import Glibc

/// Fills `length` bytes of page cache, at most half of the available memory, with a file that is removed before it is
/// written back.
func touchMemory(_ length: Int64, in directory: String) throws {
    guard length > 0 else { return }
    let path = directory + "/touched"
    let file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
    guard file >= 0 else { throw BenchFailure(call: "create", on: path) }
    defer { close(file) }
    unlink(path)
    let piece = [UInt8](repeating: 1, count: 1 << 20)
    var rest = min(length, availableMemory() / 2)
    while rest > 0 {
        let count = write(file, piece, piece.count)
        guard count > 0 else { throw BenchFailure(call: "write", on: path) }
        rest -= Int64(count)
    }
}

/// The bytes usable without swapping (`MemAvailable`).
private func availableMemory() -> Int64 {
    for line in readText("/proc/meminfo").split(separator: "\n") {
        let words = line.split(separator: " ")
        if words.count >= 2, words[0] == "MemAvailable:", let kibibytes = Int64(words[1]) {
            return kibibytes << 10
        }
    }
    return 0
}
