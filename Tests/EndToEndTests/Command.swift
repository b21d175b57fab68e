// Programs run to their exit, or in the background until a signal ends them.

import Foundation
import SpoolgateTestSupport

struct Command {
    var status: Int32
    var output: String
    var errors: String
}

extension Command {
    init(_ path: String, _ arguments: [String], environment: [String: String] = [:]) throws {
        let process = Process()
        process.executableURL = URL(filePath: path)
        process.arguments = arguments
        process.environment = Self.environment(with: environment)
        let files = FileManager.default.temporaryDirectory
            .appending(path: "command-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: files, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: files) }
        let outputs = ["out", "err"].map { files.appending(path: $0) }
        for output in outputs { try Data().write(to: output) }
        process.standardOutput = try FileHandle(forWritingTo: outputs[0])
        process.standardError = try FileHandle(forWritingTo: outputs[1])
        process.standardInput = FileHandle.nullDevice
        try process.run()
        process.waitUntilExit()
        status = process.terminationStatus
        output = try String(contentsOf: outputs[0], encoding: .utf8)
        errors = try String(contentsOf: outputs[1], encoding: .utf8)
    }

    /// This process's variables without spoolgate's, and `own`.
    static func environment(with own: [String: String]) -> [String: String] {
        ProcessInfo.processInfo.environment.filter { !$0.key.hasPrefix("SPOOLGATE_") }
            .merging(own) { $1 }
    }

    static func find(_ name: String) -> String? {
        // `SPOOLGATE_NGINX=/path/to/nginx` selects another nginx.
        let other = ProcessInfo.processInfo.environment["SPOOLGATE_\(name.uppercased())"]
        if let other { return other }
        return ["/usr/sbin/", "/usr/bin/", "/bin/", "/usr/local/bin/"].map { $0 + name }
            .first { FileManager.default.isExecutableFile(atPath: $0) }
    }
}

/// A program in the background, killed when released.
final class Daemon {
    let process = Process()

    init(
        _ path: String,
        _ arguments: [String],
        log: URL,
        environment: [String: String] = [:]
    ) throws {
        process.executableURL = URL(filePath: path)
        process.arguments = arguments
        process.environment = Command.environment(with: environment)
        if !FileManager.default.fileExists(atPath: log.path()) {
            try Data().write(to: log)
        }
        let handle = try FileHandle(forWritingTo: log)
        try handle.seekToEnd()
        process.standardOutput = handle
        process.standardError = handle
        process.standardInput = FileHandle.nullDevice
        try process.run()
    }

    deinit { if process.isRunning { signal(SIGKILL) } }

    var id: Int32 { process.processIdentifier }

    func signal(_ number: Int32) { kill(process.processIdentifier, number) }

    /// Whether a signal has stopped its main thread.
    var isStopped: Bool {
        let status = try? String(contentsOfFile: "/proc/\(id)/stat", encoding: .utf8)
        return status?.split(separator: ")").last?.hasPrefix(" T") ?? false
    }

    /// Waits for the exit status, or the signal's negative number.
    func wait() -> Int32 {
        process.waitUntilExit()
        return process.terminationReason == .exit
            ? process.terminationStatus : -process.terminationStatus
    }

    /// Memory in KiB, open descriptors and threads, from /proc.
    func footprint() -> (rss: Int, descriptors: Int, threads: Int) {
        let status = (try? String(contentsOfFile: "/proc/\(id)/status", encoding: .utf8)) ?? ""
        func value(_ name: String) -> Int {
            status.split(separator: "\n").first { $0.hasPrefix(name + ":") }
                .flatMap { $0.split { $0 == " " || $0 == "\t" }.compactMap { Int($0) }.first } ?? 0
        }
        let files = try? FileManager.default.contentsOfDirectory(atPath: "/proc/\(id)/fd")
        return (value("VmRSS"), files?.count ?? 0, value("Threads"))
    }
}
