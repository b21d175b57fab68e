// The web servers in front of the daemon, with the shipped configuration.

import Foundation
import SpoolgateTestSupport

enum Front: Equatable {
    case nginx
    /// The shipped files, the interim module and its lines.
    case nginxWithModule
    /// The lines for `auth_request`, which sends its requests to this port.
    case nginxAsking(UInt16)
    /// The lines for a login, and for preflight requests without it.
    case nginxWithLogin(NginxLogin)
    case nginxMistaken(NginxMistake)
    case nginxBounded(NginxBounds)
    case nginxKeeping
    /// The shipped files and the line for the page.
    case nginxWithPage
    /// `nginxWithPage` with the module and the operator's location.
    case nginxWithPages
    /// The module and these locations instead of the shipped one.
    case nginxServing(String)
    /// `nginxServing` without the module.
    case nginxPlainServing(String)
    /// The module and the file for several nodes: the other nodes' sockets by name.
    case nginxOfNodes([String: String])
    /// The shipped files and the line for an operator's location.
    case nginxWithAdmin
    /// Another web server with its file of `deploy/web-servers`, without TLS.
    case other(OtherServer)

    static let lighttpd = Front.other(
        OtherServer(
            program: "lighttpd",
            arguments: ["-D", "-f"],
            file: "lighttpd.conf",
            unblocksSignals: false
        )
    )

    var ending: Int32 {
        if case .other(let server) = self, !server.unblocksSignals { SIGKILL } else { SIGTERM }
    }

    private var authorizerPort: UInt16? {
        switch self {
        case .nginxAsking(let port), .nginxWithLogin(.asking(let port)): port
        default: nil
        }
    }

    private var login: NginxLogin? {
        guard case .nginxWithLogin(let login) = self else { return nil }
        return login
    }

    private var locations: String? {
        switch self {
        case .nginxServing(let locations), .nginxPlainServing(let locations): locations
        default: nil
        }
    }

    private var nodes: [String: String]? {
        guard case .nginxOfNodes(let nodes) = self else { return nil }
        return nodes
    }

    private var needsModule: Bool {
        if case .nginxServing = self { return true }
        return self == .nginxWithModule || self == .nginxWithPages || nodes != nil
    }

    private var mistake: NginxMistake? {
        guard case .nginxMistaken(let mistake) = self else { return nil }
        return mistake
    }

    private var bounds: NginxBounds? {
        guard case .nginxBounded(let bounds) = self else { return nil }
        return bounds
    }

    func start(
        in directory: URL,
        from root: URL,
        port: Int,
        tlsPort: Int,
        origin: String?
    ) throws -> Daemon {
        let log = directory.appending(path: "front.log")
        if case .other(let server) = self {
            return try Daemon(
                Command.find(server.program) ?? server.program,
                server.arguments + [try server.configuration(in: directory, port: port)],
                log: log
            )
        }
        let configuration = try NginxConfiguration.write(
            to: directory,
            from: root,
            port: port,
            tlsPort: tlsPort,
            module: needsModule ? InterimModule.path(in: root) : nil,
            authorizer: authorizerPort,
            login: login,
            origin: origin,
            mistake: mistake,
            bounds: bounds,
            keepsConnections: self == .nginxKeeping,
            hasPage: self == .nginxWithPage || self == .nginxWithPages,
            hasAdmin: self == .nginxWithAdmin || self == .nginxWithPages,
            locations: locations,
            nodes: nodes
        )
        return try Daemon(
            Command.find("nginx") ?? "nginx",
            [
                "-p", directory.path() + "/nginx", "-e", directory.path() + "/error.log", "-c",
                configuration, "-g", "daemon off;",
            ],
            log: log
        )
    }
}

/// A web server of `deploy/web-servers`.
struct OtherServer: Equatable {
    let program: String
    /// The arguments before the path of the configuration.
    let arguments: [String]
    /// The name of its file.
    let file: String
    /// Foundation starts programs with most signals blocked; a server that does not unblock them must be killed.
    let unblocksSignals: Bool

    /// Writes the shipped file with the marked lines replaced; returns its path.
    func configuration(in directory: URL, port: Int) throws -> String {
        for folder in ["uploads", "empty"] {
            try FileManager.default.createDirectory(
                at: directory.appending(path: folder),
                withIntermediateDirectories: true
            )
        }
        let shipped = Sandbox.root.appending(path: "deploy/web-servers/\(file)")
        let lines = try String(contentsOf: shipped, encoding: .utf8).split(
            separator: "\n",
            omittingEmptySubsequences: false
        )
        let text = lines.map { line in
            guard let mark = line.firstRange(of: "# run: ") else { return String(line) }
            return String(line[mark.upperBound...]).replacing("PORT", with: "\(port)")
                .replacing("STATE/", with: "\(directory.path())/")
        }.joined(separator: "\n")
        let copy = directory.appending(path: file)
        try text.write(to: copy, atomically: true, encoding: .utf8)
        return copy.path()
    }
}

enum InterimModule {
    /// The module of these sources; `make` builds it once in a run if it is missing or outdated.
    static let built = make(in: Sandbox.root)

    private static let previous = make(in: PreviousBuild.sources)

    static func path(in root: URL) throws(NeverHappened) -> String {
        try (root == Sandbox.root ? built : previous).get()
    }

    private static func make(in root: URL) -> Result<String, NeverHappened> {
        do {
            let make = try Command(
                Command.find("make") ?? "make",
                ["--no-print-directory", "-C", root.path(), "module"]
            )
            guard make.status == 0 else {
                return .failure(NeverHappened(description: make.output + make.errors))
            }
            let path = ".build/nginx-module/ngx_http_interim_module.so"
            return .success(root.appending(path: path).path())
        } catch {
            return .failure(NeverHappened(description: "make: \(error)"))
        }
    }
}
