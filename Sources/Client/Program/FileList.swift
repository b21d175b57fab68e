// The list that `--files-from` reads.

import Glibc
import SpoolgatePosix

enum FileList {
    /// Reads the names in a list, skipping empty ones.
    ///
    /// The path `-` means standard input.
    ///
    /// If `isNull` is true, names end with a zero byte instead of a newline.
    ///
    /// - Throws: `Ending` if the list cannot be read.
    static func read(_ path: FilePath, isNull: Bool) throws(Ending) -> [FilePath] {
        let isStandard = path.bytes == [UInt8(ascii: "-")]
        let number = isStandard ? STDIN_FILENO : path.withPointer { open($0, O_RDONLY | O_CLOEXEC) }
        guard number >= 0 else {
            let error = SystemError("open", on: path.shown)
            throw Ending(.usage, "\(error); name a readable list with --files-from")
        }
        defer { if !isStandard { close(number) } }
        var bytes: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 1 << 16)
        while true {
            let count = Glibc.read(number, &chunk, chunk.count)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else {
                let subject = isStandard ? "standard input" : path.shown
                let error = SystemError("read", on: subject)
                throw Ending(.usage, "\(error); name a readable list with --files-from")
            }
            guard count > 0 else { break }
            bytes.append(contentsOf: chunk[..<count])
        }
        return bytes.split(separator: isNull ? 0 : UInt8(ascii: "\n"))
            .map { FilePath(bytes: $0) }.filter { !$0.bytes.isEmpty }
    }
}
