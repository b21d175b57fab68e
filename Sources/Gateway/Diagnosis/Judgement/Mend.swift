// What mends a front, each in one place: nginx's directives first, as they stand in the shipped files.

import SpoolgateTextFormats

/// What is to be written, and where.
enum Mend {
    /// The one include that has most of the others.
    static let location = "include /usr/share/spoolgate/nginx/location*.conf;"
    /// The same, where a mend stands that it has.
    static let hasIt = location + "  (includes it)"
    static let buffering = "fastcgi_request_buffering off;"
    static let lateBody = "client_body_early_read 0;"
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
    static let owner =
        "fastcgi_param SPOOLGATE_OWNER $remote_user;  (only with auth_basic and auth_basic_user_file)"
    /// Of a probe from elsewhere.
    static let local = "run the probe with --local on the server, which reports more"

    /// What mends that content was answered `answer`, where no more is known of it than that.
    static func refusal(_ answer: ProbeAnswer, otherwise mends: [String]) -> [String] {
        answer.isTooLarge ? [size] : mends
    }

    /// The command that adds a name to a file of passwords; it asks for the password.
    static func addUser(_ name: String, to path: String) -> String {
        // A name with characters of its own is for a person to write.
        let word = name.shellWord == name ? name : "NAME"
        return
            "printf '\(word):%s\\n' \"$(openssl passwd -apr1)\" >>\(path.shellWord)  (asks for the password)"
    }

    /// The words of the directive of nginx that a mend begins with, without quotes; nil: it is a command or a setting.
    static func directive(_ mend: String) -> [String]? {
        guard mend.contains(where: { ";{".contains($0) }) else { return nil }
        var reader = NginxReader(mend.prefix { !";{".contains($0) } + ";", file: "")
        guard let words = reader.directives().first?.words, let name = words.first else {
            return nil
        }
        let isDirective =
            name.utf8.allSatisfy { (0x61...0x7a).contains($0) || $0 == UInt8(ascii: "_") }
            && (name.contains("_") || ["include", "satisfy", "listen", "location"].contains(name))
            && name != "large_client_header_buffers"
        return isDirective ? words : nil
    }

    /// The parameter by which nginx tells several directives of one name apart: `SPOOLGATE_ORIGIN`; nil: there is one.
    static func parameter(of words: [String]) -> String? {
        words.first == "fastcgi_param" ? words.dropFirst().first : nil
    }

    static func origin(_ origin: String) -> String { "fastcgi_param SPOOLGATE_ORIGIN \(origin);" }
}
