// A private nginx with static files, DAV, TLS with a private CA, and PHP-FPM.

import Foundation
import SpoolgateTestSupport

final class RealUpstream {
    let directory: URL
    let url: String
    let tlsURL: String
    private var servers: [Daemon] = []

    var authority: String { directory.path() + "/ca.pem" }
    var strangeAuthority: String { directory.path() + "/strange.pem" }

    /// If `isExpired`, the certificate expired yesterday.
    init(port: Int? = nil, isExpired: Bool = false) throws {
        directory = FileManager.default.temporaryDirectory
            .appending(path: "upstream-\(UUID().uuidString.prefix(8))")
        for folder in ["root/files/dav", "temp"] {
            try FileManager.default.createDirectory(
                at: directory.appending(path: folder),
                withIntermediateDirectories: true
            )
        }
        let free = try FreePort.take(2)
        let ports = [port ?? free[0], free[1]]
        url = "http://127.0.0.1:\(ports[0])"
        tlsURL = "https://localhost:\(ports[1])"
        try makeCertificates(days: isExpired ? -1 : 2)
        try Self.php.write(
            to: directory.appending(path: "root/files/index.php"),
            atomically: true,
            encoding: .utf8
        )
        try startPHP()
        try startNginx(ports)
    }

    deinit {
        for server in servers {
            server.signal(SIGTERM)
            _ = server.wait()
        }
        try? FileManager.default.removeItem(at: directory)
    }

    func stopPHP() {
        let php = servers.removeFirst()
        php.signal(SIGTERM)
        _ = php.wait()
    }

    func restartPHP() throws {
        try? FileManager.default.removeItem(atPath: directory.path() + "/php.sock")
        try startPHP()
    }

    func phpCalls() throws -> Int {
        let calls = directory.appending(path: "root/files/calls")
        guard FileManager.default.fileExists(atPath: calls.path()) else { return 0 }
        return try Data(contentsOf: calls).count
    }

    func phpHeard() throws -> [Heard] {
        let heard = directory.appending(path: "root/files/heard")
        guard FileManager.default.fileExists(atPath: heard.path()) else { return [] }
        return try Data(contentsOf: heard).split(separator: UInt8(ascii: "\n")).map {
            try JSONDecoder().decode(Heard.self, from: $0)
        }
    }

    struct Heard: Decodable {
        struct File: Decodable {
            var name: String
            var type: String
            var sha1: String
        }

        var method: String
        var uri: String
        var length: String
        var type: String?
        var disposition: String?
        /// In hex; of a form, the hash of the empty string.
        var sha1: String
        /// The fields of a resumable upload that reached PHP.
        var markers: [String]
        var files: Files

        /// PHP writes an empty list if there are none.
        struct Files: Decodable {
            var byField: [String: File]

            init(from decoder: any Decoder) throws {
                let container = try decoder.singleValueContainer()
                byField = (try? container.decode([String: File].self)) ?? [:]
            }
        }
    }

    func davFile(_ name: String) throws -> Data {
        try Data(contentsOf: directory.appending(path: "root/files/dav/\(name)"))
    }

    static func sha1(of data: Data) throws -> String {
        let file = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString)
        try data.write(to: file)
        defer { try? FileManager.default.removeItem(at: file) }
        let words = try Command("/usr/bin/openssl", ["dgst", "-sha1", "-r", file.path()]).output
        return String(words.prefix(40))
    }

    /// Responds with the request or `size` bytes, and the query's `status`; does not implement OPTIONS.
    private static let php = """
        <?php
        if ($_SERVER['REQUEST_METHOD'] === 'OPTIONS') {
            http_response_code(405);
            exit;
        }
        file_put_contents(__DIR__ . '/calls', 'x', FILE_APPEND);
        http_response_code((int)($_GET['status'] ?? 202));
        header('X-Upstream: php');
        if (isset($_GET['size'])) {
            echo str_repeat('x', (int)$_GET['size']);
            exit;
        }
        header('Content-Type: application/json');
        $markers = array_values(array_filter(array_keys($_SERVER), function ($name) {
            return preg_match('/^HTTP_(UPLOAD|TUS)_/', $name) === 1;
        }));
        $files = array_map(function ($file) {
            $kept = __DIR__ . '/' . bin2hex(random_bytes(8));
            return [
                'name' => $file['name'], 'type' => $file['type'], 'size' => $file['size'],
                'error' => $file['error'], 'moved' => move_uploaded_file($file['tmp_name'], $kept),
                'sha1' => sha1_file($kept),
            ];
        }, $_FILES);
        $heard = json_encode([
            'files' => $files,
            'post' => $_POST,
            'method' => $_SERVER['REQUEST_METHOD'],
            'uri' => $_SERVER['REQUEST_URI'],
            'length' => $_SERVER['CONTENT_LENGTH'],
            'type' => $_SERVER['CONTENT_TYPE'] ?? null,
            'disposition' => $_SERVER['HTTP_CONTENT_DISPOSITION'] ?? null,
            'custom' => $_SERVER['HTTP_X_CUSTOM'] ?? null,
            'sha1' => sha1_file('php://input'),
            'markers' => $markers,
        ], JSON_INVALID_UTF8_SUBSTITUTE);
        file_put_contents(__DIR__ . '/heard', $heard . "\\n", FILE_APPEND | LOCK_EX);
        echo $heard;
        """

    private func startPHP() throws {
        let program = try FileManager.default.contentsOfDirectory(atPath: "/usr/sbin")
            .first { $0.hasPrefix("php-fpm") }
        guard let program else {
            throw NeverHappened(description: "php-fpm is not installed: apt-get install php-fpm")
        }
        let socket = directory.path() + "/php.sock"
        let user = getuid() == 0 ? "user = root\ngroup = root\n" : ""
        try """
        [global]
        error_log = \(directory.path())/php.log
        daemonize = no
        [www]
        \(user)listen = \(socket)
        listen.mode = 0666
        pm = static
        pm.max_children = 2
        php_admin_value[upload_max_filesize] = 1G
        php_admin_value[post_max_size] = 1G
        """.write(
            to: directory.appending(path: "php.conf"),
            atomically: true,
            encoding: .utf8
        )
        let root = getuid() == 0 ? ["-R"] : []
        servers.append(
            try Daemon(
                "/usr/sbin/" + program,
                ["-n", "-F", "-y", directory.path() + "/php.conf"] + root,
                log: directory.appending(path: "php.out")
            )
        )
        try eventually("php-fpm listens") { UnixSocket.accepts(socket) }
    }

    private func startNginx(_ ports: [Int]) throws {
        let path = directory.path()
        let user = getuid() == 0 ? "user root;" : ""
        try """
        \(user)
        pid \(path)/nginx.pid;
        error_log \(path)/error.log warn;
        events { worker_connections 256; }
        http {
            access_log off;
            client_body_temp_path \(path)/temp/body;
            proxy_temp_path \(path)/temp/proxy;
            fastcgi_temp_path \(path)/temp/fastcgi;
            uwsgi_temp_path \(path)/temp/uwsgi;
            scgi_temp_path \(path)/temp/scgi;
            client_max_body_size 0;
            server {
                listen 127.0.0.1:\(ports[0]);
                listen 127.0.0.1:\(ports[1]) ssl;
                ssl_certificate \(path)/server.pem;
                ssl_certificate_key \(path)/server.key;
                root \(path)/root;
                location /files/dav/ { dav_methods PUT DELETE MKCOL; }
                location ~ \\.php$ {
                    include /etc/nginx/fastcgi_params;
                    fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
                    fastcgi_pass unix:\(path)/php.sock;
                }
            }
        }
        """.write(
            to: directory.appending(path: "nginx.conf"),
            atomically: true,
            encoding: .utf8
        )
        servers.append(
            try Daemon(
                Command.find("nginx") ?? "nginx",
                ["-e", path + "/error.log", "-c", path + "/nginx.conf", "-g", "daemon off;"],
                log: directory.appending(path: "nginx.out")
            )
        )
        try eventually("the upstream listens") { (try? WireClient(port: ports[0])) != nil }
    }

    private func makeCertificates(days: Int) throws {
        let path = directory.path()
        func openssl(_ arguments: String) throws {
            let result = try Command(
                "/usr/bin/openssl",
                arguments.split(separator: " ").map(String.init)
            )
            guard result.status == 0 else { throw NeverHappened(description: result.errors) }
        }
        for name in ["ca", "strange"] {
            try openssl(
                "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 "
                    + "-subj /CN=\(name) -keyout \(path)/\(name).key -out \(path)/\(name).pem"
            )
        }
        try openssl(
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost "
                + "-keyout \(path)/server.key -out \(path)/server.csr"
        )
        try "subjectAltName=DNS:localhost\n".write(
            to: directory.appending(path: "san"),
            atomically: true,
            encoding: .utf8
        )
        try openssl(
            "x509 -req -in \(path)/server.csr -CA \(path)/ca.pem -CAkey \(path)/ca.key "
                + "-CAcreateserial -days \(days) -extfile \(path)/san -out \(path)/server.pem"
        )
    }
}
