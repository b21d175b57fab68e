// The texts of fixes, each defined once; nginx's directives are written as in the shipped files.

import SpoolgateTextFormats

enum Fix {
    /// The directive that includes the shipped files, which contain most of the other directives.
    static let location = "include /usr/share/spoolgate/nginx/location*.conf;"
    /// An alternative to a directive that the included files contain.
    static let hasIt = location + "  (includes it)"
    static let buffering = "fastcgi_request_buffering off;"
    static let lateContent = "client_body_early_read 0;"
    static let proxy = "proxy_request_buffering off;  (on another nginx in front, if any)"
    static let size = "client_max_body_size 0;"
    static let window = "client_body_buffer_size 1m;"
    static let gap = "client_body_timeout 60s;"
    static let errors = "fastcgi_intercept_errors off;"
    static let http2 = "listen 443 ssl http2;"
    static let snippet = "include snippets/spoolgate*.conf;"
    static let nodes =
        "fastcgi_pass $spoolgate_node;  (and list every node in spoolgate_nodes.conf)"
    static let login = "auth_basic \"Uploads\";"
    static let passwords =
        "auth_basic_user_file /etc/nginx/uploads.htpasswd;  (an existing file that nginx's workers may "
        + "read; --local checks it)"
    static let all = "satisfy all;  (if satisfy any admits clients without the password)"
    static let credentials =
        "-H \"Authorization: Basic $(printf %s NAME:PASSWORD | base64 -w0)\""
    static let errorLog =
        "tail /var/log/nginx/error.log  (on the server; it names the file or service)"
    private static let moduleName = "libnginx-mod-http-interim"
    static let module = "apt install \(moduleName)"
    static let noModule =
        "apt remove \(moduleName)  (if a proxy in front takes a 104 for the final response)"
    static let units = "systemctl status spoolgate.socket spoolgate"
    static let log = "journalctl -u spoolgate  (shows the reason)"
    static let owner =
        "fastcgi_param SPOOLGATE_OWNER $remote_user;  (only with auth_basic and auth_basic_user_file)"
    /// The fix for problems whose cause only a probe on the server can find.
    static let local = "run the probe with --local on the server, which reports more"

    static func addUser(_ name: String, to path: String) -> String {
        // If the shell would not take a name literally, the operator must insert the name.
        let word = name.shellWord == name ? name : "NAME"
        return
            "printf '\(word):%s\\n' \"$(openssl passwd -apr1)\" >>\(path.shellWord)  (asks for the password)"
    }

    static func origin(_ origin: String) -> String { "fastcgi_param SPOOLGATE_ORIGIN \(origin);" }
}
