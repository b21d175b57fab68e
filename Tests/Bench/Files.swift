// The directories the benchmark makes, empties and removes.
//
// Invariant: nothing is removed outside the directory that the benchmark made for itself.

import Glibc

/// Makes a directory and those above it.
func makeDirectory(_ path: String) throws(BenchFailure) {
    if mkdir(path, 0o755) == 0 || errno == EEXIST { return }
    guard errno == ENOENT, let slash = path.lastIndex(of: "/"), slash > path.startIndex else {
        throw BenchFailure(call: "mkdir", on: path)
    }
    try makeDirectory(String(path[..<slash]))
    guard mkdir(path, 0o755) == 0 || errno == EEXIST else {
        throw BenchFailure(call: "mkdir", on: path)
    }
}

/// Removes everything in a directory, which itself stays; a missing directory is empty.
func emptyDirectory(_ path: String) throws(BenchFailure) {
    for name in names(in: path) {
        let entry = "\(path)/\(name)"
        if unlink(entry) == 0 || errno == ENOENT { continue }
        guard errno == EISDIR || errno == EPERM else {
            throw BenchFailure(call: "unlink", on: entry)
        }
        try emptyDirectory(entry)
        guard rmdir(entry) == 0 || errno == ENOENT else {
            throw BenchFailure(call: "rmdir", on: entry)
        }
    }
}

/// Writes a small file.
func writeText(_ text: String, to path: String) throws(BenchFailure) {
    let file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o644)
    guard file >= 0 else { throw BenchFailure(call: "create", on: path) }
    defer { close(file) }
    let bytes = Array(text.utf8)
    guard write(file, bytes, bytes.count) == bytes.count else {
        throw BenchFailure(call: "write", on: path)
    }
}

/// Makes a file's content durable.
///
/// - Returns: the processor seconds it took.
func synchronise(_ path: String) throws(BenchFailure) -> Double {
    let file = open(path, O_RDONLY | O_CLOEXEC)
    guard file >= 0 else { throw BenchFailure(call: "open", on: path) }
    defer { close(file) }
    let start = threadSeconds()
    guard fdatasync(file) == 0 else { throw BenchFailure(call: "fdatasync", on: path) }
    return threadSeconds() - start
}

/// The length of a file in bytes.
func fileLength(_ path: String) throws(BenchFailure) -> Int64 {
    var status = stat()
    guard stat(path, &status) == 0 else { throw BenchFailure(call: "stat", on: path) }
    return Int64(status.st_size)
}

/// The names in a directory, but for `.` and `..`; empty if it cannot be read.
private func names(in path: String) -> [String] {
    guard let directory = opendir(path) else { return [] }
    defer { closedir(directory) }
    var names: [String] = []
    while let entry = readdir(directory) {
        let name = withUnsafeBytes(of: &entry.pointee.d_name) { bytes in
            String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
        }
        if name != "." && name != ".." { names.append(name) }
    }
    return names
}

/// The lengths of all regular files below a directory.
func fileLengths(below directory: String) throws(BenchFailure) -> [Int64] {
    var lengths: [Int64] = []
    for name in names(in: directory) {
        let path = "\(directory)/\(name)"
        var status = stat()
        guard lstat(path, &status) == 0 else { throw BenchFailure(call: "stat", on: path) }
        if status.st_mode & S_IFMT == S_IFDIR {
            lengths += try fileLengths(below: path)
        } else {
            lengths.append(Int64(status.st_size))
        }
    }
    return lengths
}

/// Makes a file of `length` bytes of the shared block, on the disk when this returns.
func makeFile(_ path: String, length: Int64) throws(BenchFailure) {
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
