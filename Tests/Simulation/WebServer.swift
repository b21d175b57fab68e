// nginx for the mode with real sockets: one for all worlds, with the shipped files and the repository's module.
//
// A client's request names its daemon, and has a number: the gateway's side finds its conversation by it, and nginx
// logs it when it has ended the request. What the laws cannot demand in this mode:
// - A client hears nothing if the daemon ends or aborts its request: the shipped files close the connection then.
//   nginx answers nothing else itself; what it adds (`From-Gateway`) only to the gateway's answers shows it.
// - Content that was sent may be lost by a cut, because nginx drops what it has not passed on.
// - A full disk does not stop nginx when it writes content into the spool itself.

import Foundation
import SpoolgatePosix
import SpoolgateRequests
import SpoolgateTestSupport

final class WebServer: Sendable {
    /// nil unless the environment asks for real sockets.
    static let shared: WebServer? = {
        guard ProcessInfo.processInfo.environment["SIMULATION_SOCKETS"] == "1" else { return nil }
        do { return try WebServer() } catch {
            preconditionFailure("nginx does not serve: \(error)")
        }
    }()

    private struct State {
        /// Those that are not over.
        var calls: [Int: WireExchange] = [:]
        var lastNumber = 0
        var freeNames = WebServer.names
    }

    /// The daemons of one world.
    private static let names = ["daemon0", "daemon1"]

    let port: Int
    private let folder: String
    private let state = Monitor(State())
    private let nginx = Process()

    private init() throws {
        port = try FreePort.take(1)[0]
        folder = "\(ScratchDirectory.memory)/simulation-nginx-\(UInt64.random(in: 0...(.max)))"
        let root = URL(filePath: "\(#filePath)/../../..").standardized.path()
        try FileManager.default.createDirectory(
            atPath: folder,
            withIntermediateDirectories: true
        )
        let shared = "/usr/share/spoolgate/nginx/"
        let location = try String(contentsOfFile: "\(root)/nginx/location.conf", encoding: .utf8)
            .replacing("\(shared)modules/*.conf", with: "\(root)/nginx/module/interim.conf")
            .replacing(shared, with: "\(root)/nginx/")
        try location.write(toFile: "\(folder)/location.conf", atomically: true, encoding: .utf8)
        let configuration = Self.configuration(root, folder, port)
        try configuration.write(toFile: "\(folder)/n.conf", atomically: true, encoding: .utf8)
        try readLog()
        // It ends with this process, however that ends.
        nginx.executableURL = URL(filePath: "/usr/bin/setpriv")
        nginx.arguments = "--pdeathsig KILL nginx -e error.log -c n.conf -p \(folder)"
            .components(separatedBy: " ")
        nginx.environment = ["PATH": "/usr/sbin:/usr/bin:/bin:/usr/local/bin"]
        try nginx.run()
        try eventually("nginx listens", seconds: 30) {
            let socket = try? StreamSocket(connectedTo: .port(UInt16(port)), patience: 1)
            socket?.close()
            return socket != nil
        }
    }

    private static func configuration(_ root: String, _ folder: String, _ port: Int) -> String {
        let upstreams = names.map { name in
            "upstream \(name) { server unix:\(folder)/\(name).sock; keepalive 64; }"
        }
        let paths = ["client_body", "fastcgi", "proxy", "scgi", "uwsgi"].map {
            "\($0)_temp_path \(folder)/temp;"
        }
        return """
            load_module \(root)/.build/nginx-module/ngx_http_interim_module.so;
            daemon off;
            master_process off;
            pid nginx.pid;
            events { worker_connections 512; }
            http {
                \((upstreams + paths).joined(separator: "\n    "))
                log_format call "$http_x_call $upstream_bytes_sent";
                access_log \(folder)/log call;
                include \(root)/nginx/http.conf;
                server {
                    listen 127.0.0.1:\(port);
                    include \(root)/nginx/server.conf;
                    location /files {
                        fastcgi_pass $http_x_daemon;
                        fastcgi_next_upstream off;
                        fastcgi_param SPOOLGATE_ROUTE $host;
                        fastcgi_param SPOOLGATE_ORIGIN $scheme://$host:$server_port;
                        add_header From-Gateway $upstream_header_time always;
                        include \(folder)/location.conf;
                    }
                }
            }

            """
    }

    func stop() {
        kill(nginx.processIdentifier, SIGKILL)
        nginx.waitUntilExit()
        try? FileManager.default.removeItem(atPath: folder)
    }

    func startFront(_ gateway: Gateway, isDead: @escaping @Sendable () -> Bool) throws -> Front {
        let name = state.updateQuietly { $0.freeNames.removeFirst() }
        return try Front(name, at: "\(folder)/\(name).sock", gateway, self, isDead: isDead)
    }

    func free(_ front: Front) { state.updateQuietly { $0.freeNames.append(front.name) } }

    // MARK: Calls

    func nextNumber() -> Int {
        state.updateQuietly {
            $0.lastNumber += 1
            return $0.lastNumber
        }
    }

    func add(_ call: WireExchange) { state.updateQuietly { $0.calls[call.number] = call } }

    func remove(_ number: Int) { state.updateQuietly { $0.calls[number] = nil } }

    func call(_ number: Int) -> WireExchange? { state.updateQuietly { $0.calls[number] } }

    /// nginx tells through a pipe which requests it has ended.
    private func readLog() throws {
        let path = "\(folder)/log"
        let pipe = mkfifo(path, 0o600) == 0 ? open(path, O_RDWR | O_CLOEXEC) : -1
        guard pipe >= 0 else { throw SystemError("mkfifo", on: path) }
        try SpoolgatePosix.Thread.start(name: "nginx-log") {
            let log = FileHandle(fileDescriptor: pipe)
            while true {
                // nginx writes whole lines: a call's number, and how much it has sent to the gateway.
                let text = String(decoding: log.availableData, as: UTF8.self)
                for line in text.split(separator: "\n") {
                    let words = line.split(separator: " ").map { Int($0) ?? 0 }
                    self.call(words[0])?.noteLogged(isPassed: words.dropFirst().contains { $0 > 0 })
                }
            }
        }
    }
}
