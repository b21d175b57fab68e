// Starts a stage's processes, and waits until each accepts connections.

import Glibc
import SpoolgateTestSupport

extension Stage {
    static func startGateway(
        _ options: Options,
        work: String,
        socket: String,
        sinkURL: String,
        authority: String?,
        log: String
    ) throws -> Child {
        let settings = work + "/spoolgate.yaml"
        let threads = (options.slowCounts.max() ?? 0) + 200
        try writeText(
            gatewaySettings(
                work: work,
                socket: socket,
                sinkURL: sinkURL,
                authority: authority,
                threads: threads,
                promise: options.promise,
                hasLane: options.hasLane
            ),
            to: settings
        )
        let child = try Child.start(
            "spoolgate",
            program: gatewayProgram(options),
            arguments: ["serve", "--config", settings],
            log: log
        )
        try waitUntilConnectable(.path(socket), child)
        return child
    }

    static func startTusd(
        _ program: String,
        _ directory: String,
        socket: String,
        log: String
    ) throws -> Child {
        let child = try Child.start(
            "tusd",
            program: findProgram(program),
            arguments: [
                "-unix-sock", socket, "-upload-dir", directory, "-base-path", TusUpload.base,
                "-behind-proxy", "-verbose=false", "-show-greeting=false",
            ],
            log: log
        )
        try waitUntilConnectable(.path(socket), child)
        return child
    }

    static func startSink(log: String) throws -> (Child, UInt16) {
        var ends: [Int32] = [0, 0]
        guard pipe(&ends) == 0 else { throw BenchFailure(call: "pipe") }
        defer { close(ends[0]) }
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        let started = Result {
            try Child.start(
                "sink",
                program: ownProgram(),
                arguments: ["sink"],
                log: log,
                output: ends[1]
            )
        }
        close(ends[1])
        let child = try started.get()
        var line = [UInt8](repeating: 0, count: 16)
        let count = read(ends[0], &line, line.count)
        let text = String(decoding: line.prefix(max(count, 0)), as: UTF8.self)
        guard let port = UInt16(text.prefix { $0.isNumber }) else {
            throw BenchFailure("the sink did not report its port; see \(log)")
        }
        return (child, port)
    }

    /// Waits at most 15 s until a process accepts connections.
    static func waitUntilConnectable(
        _ address: SocketAddress,
        _ child: Child
    ) throws {
        try eventually("\(child.name) listens", seconds: 15) {
            if let ending = child.ending {
                let text = readText(child.log).suffix(1000)
                throw BenchFailure("\(ending):\n\(text)")
            }
            guard let socket = try? connectSocket(to: address) else { return false }
            close(socket)
            return true
        }
    }
}
