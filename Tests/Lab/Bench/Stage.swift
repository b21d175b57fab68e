// The environment of one section: a sink, nginx, spoolgate, optionally tusd, and their directories.
//
// A stage begins with empty directories and new processes, so that sections do not influence each other. Everything is
// in the state directory, and so on one disk.

import Glibc
import SpoolgateTestSupport

final class Stage {
    /// nginx's TCP address.
    let address: SocketAddress
    /// The URL of the sink as an upstream, `https://` if the stage has TLS.
    let sinkURL: String
    /// The URL of uploads that the gateway delivers to the sink, through nginx over http.
    let gatewayURL: String
    /// The authority of the sink's certificate, a PEM file; nil without TLS.
    let authority: String?
    /// nginx's unix socket, which cannot run out of ports.
    let localAddress: SocketAddress
    let davDirectory: String
    /// The directory of client_body_in_file_only.
    let bodyDirectory: String
    /// The directory of the routes `drop` and `drop-process`.
    let dropDirectory: String
    let tusdDirectory: String
    /// Nil with `--peers-only`.
    var gatewayPID: pid_t? { gateway?.pid }
    var sinkPID: pid_t { sink.pid }

    /// The directory of all the section's files.
    let work: String
    private let logs: [String]
    private let sink: Child
    private let nginx: Child
    private let gateway: Child?
    private let tusd: Child?
    private let hasModule: Bool
    private let nginxPIDs: [pid_t]

    /// Starts all processes and waits at most 15 s for each; `withTLS`: nginx terminates TLS for the sink.
    init(_ options: Options, withTLS: Bool = false) throws {
        let state = try Stage.absolute(options.state)
        let work = state + "/work"
        self.work = work
        davDirectory = work + "/html/dav"
        bodyDirectory = work + "/body"
        dropDirectory = work + "/drop"
        tusdDirectory = work + "/tusd"
        hasModule = options.module != nil
        logs = ["spoolgate", "nginx", "sink", "tusd"].map { "\(state)/\($0).log" }
        try makeDirectory(work)
        try emptyDirectory(work)
        for log in logs { try writeText("", to: log) }
        for path in [
            davDirectory, bodyDirectory, dropDirectory, tusdDirectory, work + "/spool",
            work + "/temp",
        ] {
            try makeDirectory(path)
        }

        let (sink, sinkPort) = try Stage.startSink(log: logs[2])
        self.sink = sink
        let port = try freePort()
        address = .port(port)
        gatewayURL = "http://127.0.0.1:\(port)/files"
        let identity = withTLS ? try Identity(in: work, log: logs[1]) : nil
        authority = identity?.certificate
        sinkURL =
            identity.map { "https://127.0.0.1:\($0.port)" } ?? "http://127.0.0.1:\(sinkPort)"
        let local = work + "/nginx.sock"
        let socket = work + "/gateway.sock"
        guard local.utf8.count < 100, socket.utf8.count < 100 else {
            throw BenchFailure("the state directory's path is too long for a unix socket: \(work)")
        }
        localAddress = .path(local)

        gateway =
            options.peersOnly
            ? nil
            : try Stage.startGateway(
                options,
                work: work,
                socket: socket,
                sinkURL: sinkURL,
                authority: authority,
                log: logs[0]
            )

        let tusdSocket = work + "/tusd.sock"
        tusd =
            if let program = options.tusdProgram {
                try Stage.startTusd(program, tusdDirectory, socket: tusdSocket, log: logs[3])
            } else {
                nil
            }

        let configuration = work + "/nginx.conf"
        try writeText(
            nginxConfiguration(
                work: work,
                port: port,
                local: local,
                gateway: socket,
                tusd: tusdSocket,
                sinkPort: sinkPort,
                identity: identity,
                module: options.module,
                spoolReceive: options.spoolReceive,
                log: logs[1],
                workers: options.workers
            ),
            to: configuration
        )
        nginx = try Child.start(
            "nginx",
            program: findProgram(options.nginxProgram),
            arguments: ["-p", work, "-c", configuration],
            log: logs[1]
        )
        try Stage.waitUntilConnectable(address, nginx)
        let master = nginx.pid
        let workers = options.workers
        try eventually("nginx's workers", seconds: 5) { children(of: master).count >= workers }
        nginxPIDs = [master] + children(of: master)
    }

    func end() {
        nginx.end()
        gateway?.end()
        tusd?.end()
        sink.end()
        do { try emptyDirectory(work) } catch { note("\(error)") }
    }

    /// The ended processes and the last lines of each log, to report a failure.
    var findings: String {
        let endings = [sink, nginx, gateway, tusd].compactMap { $0?.ending }
        let tails = logs.flatMap { log in
            readText(log).split(separator: "\n").suffix(10).map { "    \(log): \($0)" }
        }
        return (endings + tails).joined(separator: "\n")
    }

    /// The processor seconds of nginx, the gateway and tusd.
    var serverSeconds: Double { servers.map(processorSeconds).reduce(0, +) }

    var processes: [pid_t] { servers + [sinkPID] }

    private var servers: [pid_t] { nginxPIDs + [gateway, tusd].compactMap { $0?.pid } }

    func pid(_ behind: Behind) -> pid_t? {
        switch behind {
        case .nothing: nil
        case .gateway: gateway?.pid
        case .tusd: tusd?.pid
        }
    }

    /// A row's missing prerequisite, if any.
    func lacks(for row: Row) -> String? {
        if row.behind == .tusd, tusd == nil { return "no tusd was named (--tusd PATH)" }
        if row.isReported, !hasModule { return "nginx has no module (make module)" }
        return nil
    }

    /// Waits up to 3 s until servers and sink are idle, so that work after a response counts with its request.
    func settle() {
        let deadline = now() + 3
        var before = serverSeconds + processorSeconds(sinkPID)
        while now() < deadline {
            pause(0.03)
            let after = serverSeconds + processorSeconds(sinkPID)
            if after - before < 0.0005 { return }
            before = after
        }
    }

    private static func absolute(_ path: String) throws -> String {
        try makeDirectory(path)
        return try absolutePath(path)
    }
}
