// The benchmark's directories.
//
// Invariant: the benchmark removes nothing outside its own directory.

import Foundation

func makeDirectory(_ path: String) throws {
    try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
}

/// Removes all entries of a directory, which may be missing.
func emptyDirectory(_ path: String) throws {
    for name in directoryNames(path) {
        try FileManager.default.removeItem(atPath: "\(path)/\(name)")
    }
}

/// The names in a directory; empty if unreadable.
func directoryNames(_ path: String) -> [String] {
    (try? FileManager.default.contentsOfDirectory(atPath: path)) ?? []
}

/// A text file's content; empty if it cannot be read.
func readText(_ path: String) -> String {
    String(decoding: FileManager.default.contents(atPath: path) ?? Data(), as: UTF8.self)
}

func writeText(_ text: String, to path: String) throws {
    try Data(text.utf8).write(to: URL(filePath: path))
}

/// Makes a file durable, and returns the processor seconds it took.
func synchronise(_ path: String) throws -> Double {
    let file = open(path, O_RDONLY | O_CLOEXEC)
    guard file >= 0 else { throw BenchFailure(call: "open", on: path) }
    defer { close(file) }
    let start = threadSeconds()
    guard fdatasync(file) == 0 else { throw BenchFailure(call: "fdatasync", on: path) }
    return threadSeconds() - start
}

func fileLength(_ path: String) throws -> Int64 {
    var status = stat()
    guard stat(path, &status) == 0 else { throw BenchFailure(call: "stat", on: path) }
    return Int64(status.st_size)
}

func fileLengths(below directory: String) throws -> [Int64] {
    let files = FileManager.default
    return try files.subpathsOfDirectory(atPath: directory).compactMap { name in
        let attributes = try files.attributesOfItem(atPath: "\(directory)/\(name)")
        guard attributes[.type] as? FileAttributeType == .typeRegular else { return nil }
        return (attributes[.size] as? NSNumber)?.int64Value
    }
}

/// Creates a durable file of `length` bytes of the shared block.
func makeFile(_ path: String, length: Int64) throws {
    let file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o644)
    guard file >= 0 else { throw BenchFailure(call: "open", on: path) }
    defer { close(file) }
    var left = length
    while left > 0 {
        let count = Int(min(left, Int64(Content.block.count)))
        guard Content.block.withUnsafeBytes({ writeAll(file, .init(rebasing: $0[..<count])) })
        else { throw BenchFailure(call: "write", on: path) }
        left -= Int64(count)
    }
    guard fsync(file) == 0 else { throw BenchFailure(call: "fsync", on: path) }
}
