// A path as the kernel stores it: bytes that need not be valid UTF-8.
//
// Swift's strings cannot hold such bytes. Therefore, in a path stored as text (arguments, states, the journal), each
// byte that is not UTF-8 becomes one private scalar, U+10FF00 plus the byte. Invariant: the text of a path reads back
// as the same bytes.

import Glibc
import SpoolgateTextFormats

/// The path of a file: any bytes except zero.
struct FilePath: Hashable, Sendable {
    let bytes: [UInt8]

    private static let escapes: ClosedRange<UInt32> = 0x10FF80...0x10FFFF
    private static let slash = UInt8(ascii: "/")

    /// Creates a path from the bytes before the first zero byte.
    init(bytes: some Sequence<UInt8>) { self.bytes = Array(bytes.prefix { $0 != 0 }) }

    /// Creates a path from a text that `text` returned, or from any other text as UTF-8.
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

    /// Returns the arguments of this process, each as the text of a path.
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

    /// The path as text, which `init(text:)` reads back.
    var text: String {
        // The usual case, and the fastest.
        if let text = String(validating: bytes, as: UTF8.self),
            !text.unicodeScalars.contains(where: { Self.escapes.contains($0.value) })
        {
            return text
        }
        var text = String.UnicodeScalarView()
        var rest = bytes[...]
        while let first = rest.first {
            // The shortest prefix that is UTF-8. A private scalar for a byte is escaped byte by byte.
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

    /// The path for people; U+FFFD replaces bytes that are not UTF-8 and unprintable characters.
    var shown: String { String(decoding: bytes, as: UTF8.self).forTerminal }

    var isAbsolute: Bool { bytes.first == Self.slash }

    /// The parts between slashes, without empty parts and `.`.
    var segments: [[UInt8]] {
        bytes.split(separator: Self.slash).map(Array.init).filter { $0 != [UInt8(ascii: ".")] }
    }

    /// The last part of the path; nil if the path has no parts or ends in `..`.
    var name: [UInt8]? {
        segments.last.flatMap { $0 == Array("..".utf8) ? nil : $0 }
    }

    func appending(_ name: [UInt8]) -> FilePath {
        FilePath(bytes: bytes.last == Self.slash ? bytes + name : bytes + [Self.slash] + name)
    }

    /// The absolute path; unchanged if the path is relative and the working directory was removed.
    var absolute: FilePath {
        guard !isAbsolute, let name = getcwd(nil, 0) else { return self }
        defer { free(name) }
        let count = strlen(name)
        return name.withMemoryRebound(to: UInt8.self, capacity: count) {
            FilePath(bytes: UnsafeBufferPointer(start: $0, count: count)).appending(bytes)
        }
    }

    /// Returns the canonical path of the file: absolute, without symbolic links, `.` and `..`.
    ///
    /// If the file is missing, only its directory is resolved; if that is missing, too, the result is `absolute`. If
    /// `followsLast` is true, a symbolic link as the last part is followed if its target exists.
    func canonical(followsLast: Bool) -> FilePath {
        if followsLast, let whole = resolved { return whole }
        let end = bytes.lastIndex(of: Self.slash).map { $0 + 1 } ?? 0
        // If the last part is `.`, `..` or ends in a slash, it is not the name of the file.
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

    /// The absolute path without empty parts and `.`.
    ///
    /// Parts that are `..` are kept, because they may follow a symbolic link.
    var normal: FilePath {
        FilePath(bytes: segments.reduce(into: []) { $0 += [Self.slash] + $1 })
    }

    func withPointer<R>(_ body: (UnsafePointer<CChar>) -> R) -> R {
        (bytes.map { CChar(bitPattern: $0) } + [0]).withUnsafeBufferPointer { buffer in
            // Never nil, because the array contains at least the zero.
            buffer.baseAddress.map(body) ?? body("")
        }
    }
}
