// A path as the kernel knows it: bytes, which need not be UTF-8.
//
// Swift's strings cannot hold such bytes, so a path travels through texts (arguments, states, the journal) with each byte
// that is not UTF-8 as one private scalar, U+10FF00 plus the byte. The invariant: the text of a path is read as the same
// bytes, and two paths have two texts.

import Glibc
import SpoolgateTextFormats

/// The path of a file: bytes without a zero.
struct FilePath: Hashable, Sendable {
    /// The bytes.
    let bytes: [UInt8]

    private static let escapes: ClosedRange<UInt32> = 0x10FF80...0x10FFFF
    private static let slash = UInt8(ascii: "/")

    /// Takes bytes; they end before the first zero.
    init(bytes: some Sequence<UInt8>) { self.bytes = Array(bytes.prefix { $0 != 0 }) }

    /// Reads a text that `text` gave; any other text is its own UTF-8.
    init(text: String) {
        var bytes: [UInt8] = []
        for scalar in text.unicodeScalars {
            if Self.escapes.contains(scalar.value) {
                bytes.append(UInt8(truncatingIfNeeded: scalar.value))
            } else {
                bytes.append(contentsOf: String(scalar).utf8)
            }
        }
        self.init(bytes: bytes)
    }

    /// The arguments of this process, each as the text of a path.
    static func arguments() -> [String] {
        (0..<Int(CommandLine.argc)).compactMap { index in
            CommandLine.unsafeArgv[index].map { argument in
                let count = strlen(argument)
                return argument.withMemoryRebound(to: UInt8.self, capacity: count) {
                    FilePath(bytes: UnsafeBufferPointer(start: $0, count: count)).text
                }
            }
        }
    }

    /// The path as a text that `init(text:)` reads.
    var text: String {
        // The usual case, and by far the fastest.
        if let text = String(validating: bytes, as: UTF8.self),
            !text.unicodeScalars.contains(where: { Self.escapes.contains($0.value) })
        {
            return text
        }
        var text = String.UnicodeScalarView()
        var rest = bytes[...]
        while let first = rest.first {
            // The shortest beginning that is UTF-8; a scalar that stands for a byte is taken byte by byte.
            let scalar = (1...4).lazy.filter { $0 <= rest.count }.compactMap { count in
                String(validating: rest.prefix(count), as: UTF8.self)
            }.first?.unicodeScalars.first
            if let scalar, !Self.escapes.contains(scalar.value) {
                text.append(scalar)
                rest = rest.dropFirst(String(scalar).utf8.count)
            } else {
                Unicode.Scalar(0x10FF00 + UInt32(first)).map { text.append($0) }
                rest = rest.dropFirst()
            }
        }
        return String(text)
    }

    /// The path for people: what is not UTF-8, or would move the cursor, is U+FFFD.
    var shown: String { String(decoding: bytes, as: UTF8.self).forTerminal }

    /// Whether it begins at the root.
    var isAbsolute: Bool { bytes.first == Self.slash }

    /// The parts between slashes, without empty ones and `.`.
    var segments: [[UInt8]] {
        bytes.split(separator: Self.slash).map(Array.init).filter { $0 != [UInt8(ascii: ".")] }
    }

    /// The last part; nil if there is none that can be a name.
    var name: [UInt8]? {
        segments.last.flatMap { $0 == Array("..".utf8) ? nil : $0 }
    }

    /// The path of a name below it.
    func appending(_ name: [UInt8]) -> FilePath {
        FilePath(bytes: bytes.last == Self.slash ? bytes + name : bytes + [Self.slash] + name)
    }

    /// A path that stays the same when the working directory changes; as it is if that has no name any more.
    var absolute: FilePath {
        guard !isAbsolute, let name = getcwd(nil, 0) else { return self }
        defer { free(name) }
        let count = strlen(name)
        return name.withMemoryRebound(to: UInt8.self, capacity: count) {
            FilePath(bytes: UnsafeBufferPointer(start: $0, count: count)).appending(bytes)
        }
    }

    /// The one path of a file that several lead to: no links, `.` or `..` in it; of what is not there, as far as its directory
    /// is.
    ///
    /// - Parameter followsLast: whether a link as the last name is followed, too, to what is there.
    /// - Returns: the path; `absolute` if its directory is not there.
    func canonical(followsLast: Bool) -> FilePath {
        if followsLast, let whole = resolved { return whole }
        let end = bytes.lastIndex(of: Self.slash).map { $0 + 1 } ?? 0
        // Such a last part says of itself nothing of the file.
        guard let name, bytes[end...].elementsEqual(name) else { return resolved ?? absolute }
        let directory = FilePath(bytes: end == 0 ? [UInt8(ascii: ".")] : Array(bytes[..<end]))
        return directory.resolved?.appending(name) ?? absolute
    }

    private var resolved: FilePath? {
        withPointer { path in
            guard let found = realpath(path, nil) else { return nil }
            defer { free(found) }
            let count = strlen(found)
            return found.withMemoryRebound(to: UInt8.self, capacity: count) {
                FilePath(bytes: UnsafeBufferPointer(start: $0, count: count))
            }
        }
    }

    /// An absolute path without empty parts and `.`; `..` stays, since a link may be before it.
    var normal: FilePath {
        FilePath(bytes: segments.reduce(into: []) { $0 += [Self.slash] + $1 })
    }

    /// Calls `body` with the path as C wants it.
    func withPointer<R>(_ body: (UnsafePointer<CChar>) -> R) -> R {
        (bytes.map { CChar(bitPattern: $0) } + [0]).withUnsafeBufferPointer { buffer in
            // There is always the zero.
            buffer.baseAddress.map(body) ?? body("")
        }
    }
}
