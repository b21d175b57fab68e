// nginx and PHP-FPM as docs/RECIPES.md configures them.

import Foundation
import SpoolgateTestSupport
import Testing

final class PHPApplication {
    let url: String
    /// The page's `/srv/app`.
    var path: String { folder.file("app") }
    private let folder: ScratchDirectory
    private let servers: Daemon
    private let isConfined: Bool

    static let program = (try? FileManager.default.contentsOfDirectory(atPath: "/usr/sbin"))?
        .first { $0.hasPrefix("php-fpm") }.map { "/usr/sbin/" + $0 }

    static let canConfine =
        (try? Command("/usr/bin/unshare", ["--mount", "--pid", "--fork", "true"]).status) == 0

    /// Starts both servers; confined ones have a `/tmp` of 8 MiB, also for nginx's temporary files, and a `/srv/app` of
    /// 60 MiB.
    init(script: String, without: String? = nil, confined: Bool = false) throws {
        // The confined servers have another /tmp.
        folder = try ScratchDirectory(in: "/var/tmp", "php")
        isConfined = confined
        let port = try FreePort.take(1)[0]
        url = "http://127.0.0.1:\(port)"
        try Self.write(folder, script, port: port, without: without, confined: confined)
        let confinement =
            confined
            ? """
            mount -t tmpfs -o size=8m,mode=1777 small /tmp
            mount -t tmpfs -o size=60m app "$folder/app"
            """ : ""
        let program = Self.program ?? "php-fpm"
        let asRoot = getuid() == 0 ? "-R" : ""
        let start = """
            set -e
            folder=\(folder.path)
            \(confinement)
            mkdir -p "$folder/app/tmp" "$folder/app/uploads" "$folder/temp"
            cp "$folder/upload.php" "$folder/app/"
            \(program) -F \(asRoot) -c "$folder/php.ini" -y "$folder/php.conf" &
            exec \(Command.find("nginx") ?? "nginx") -e "$folder/error.log" -c "$folder/nginx.conf" -g 'daemon off;'
            """
        let log = URL(filePath: folder.file("start.log"))
        // All processes of the namespace end with the first one.
        let unshare = ["--mount", "--pid", "--fork", "--kill-child"]
        servers =
            confined
            ? try Daemon("/usr/bin/unshare", unshare + ["/bin/sh", "-c", start], log: log)
            : try Daemon("/bin/sh", ["-c", start], log: log)
        try eventually("php-fpm and nginx listen: \(log.path())") { [folder] in
            UnixSocket.accepts(folder.file("php.sock")) && (try? WireClient(port: port)) != nil
        }
    }

    deinit {
        guard !isConfined else {
            servers.signal(SIGKILL)
            _ = servers.wait()
            return
        }
        servers.signal(SIGTERM)
        let pid = (try? String(contentsOfFile: folder.file("php.pid"), encoding: .utf8)) ?? ""
        if let number = Int32(pid.filter(\.isNumber)) { kill(number, SIGTERM) }
        _ = servers.wait()
    }

    func stored() throws -> [String: Data] {
        var root = ""
        if isConfined {
            let children = "/proc/\(servers.id)/task/\(servers.id)/children"
            let first = try String(contentsOfFile: children, encoding: .utf8).split(separator: " ")
            root = "/proc/\(try #require(first.first))/root"
        }
        let uploads = "\(root)\(path)/uploads"
        let names = try FileManager.default.contentsOfDirectory(atPath: uploads)
        return try Dictionary(
            uniqueKeysWithValues: names.map {
                ($0, try Data(contentsOf: URL(filePath: "\(uploads)/\($0)")))
            }
        )
    }

    private static func write(
        _ folder: ScratchDirectory,
        _ script: String,
        port: Int,
        without: String?,
        confined: Bool
    ) throws {
        let path = folder.path
        func put(_ name: String, _ text: String) throws {
            let lines = text.split(separator: "\n", omittingEmptySubsequences: false)
                .filter { line in without.map { !line.contains($0) } ?? true }
            try lines.joined(separator: "\n")
                .write(toFile: folder.file(name), atomically: true, encoding: .utf8)
        }
        try #require(mkdir(folder.file("app"), 0o755) == 0)
        try put("upload.php", script)
        try put("php.ini", RecipeBlock.text("php", "ini", ["/srv/app/tmp": path + "/app/tmp"]))
        let user = getuid() == 0 ? "user = root\ngroup = root\n" : ""
        try put(
            "php.conf",
            """
            [global]
            pid = \(path)/php.pid
            error_log = \(path)/php.log
            daemonize = no
            [www]
            \(user)listen = \(path)/php.sock
            listen.mode = 0666
            pm = static
            pm.max_children = 2
            """
        )
        let server = try RecipeBlock.text(
            "php",
            "nginx",
            [
                "127.0.0.1:3000": "127.0.0.1:\(port)",
                "include fastcgi_params;": "include /etc/nginx/fastcgi_params;",
                "/srv/app/upload.php": path + "/app/upload.php",
                "/run/php/php8.2-fpm.sock": path + "/php.sock",
            ]
        )
        let temporary = confined ? "/tmp" : path + "/temp"
        let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map { "\($0)_temp_path \(temporary)/\($0);" }.joined(separator: "\n")
        try put(
            "nginx.conf",
            """
            \(getuid() == 0 ? "user root;" : "")
            pid \(path)/nginx.pid;
            events { worker_connections 256; }
            http {
            access_log off;
            \(paths)
            \(server)}
            """
        )
    }
}
