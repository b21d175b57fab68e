// What mends a front, each in one place: nginx's directives first, as they stand in the shipped files.

/// What is to be written, and where.
enum Mend {
    /// The one include that has most of the others.
    static let location = "include /usr/share/spoolgate/nginx/location*.conf;"
    /// The same, where a mend stands that it has.
    static let hasIt = location + "  (has it)"
    static let buffering = "fastcgi_request_buffering off;"
    static let proxy = "proxy_request_buffering off;  (where another nginx stands in front)"
    static let size = "client_max_body_size 0;"
    static let window = "client_body_buffer_size 1m;"
    static let gap = "client_body_timeout 60s;"
    static let errors = "fastcgi_intercept_errors off;"
    static let http2 = "listen 443 ssl http2;"
    static let snippet = "include snippets/spoolgate*.conf;"
    static let nodes =
        "fastcgi_pass $spoolgate_node;  (and spoolgate_nodes.conf, with every node in it)"
    static let login = "auth_basic \"Uploads\";"
    private static let moduleName = "libnginx-mod-http-interim"
    static let module = "apt install \(moduleName)"
    static let noModule =
        "apt remove \(moduleName)  (where a proxy in front takes 104 for the answer)"
    static let units = "systemctl status spoolgate.socket spoolgate"
    static let owner =
        "fastcgi_param SPOOLGATE_OWNER $remote_user;  (only beside auth_basic and its file)"
    /// Of a probe from elsewhere.
    static let local = "--local says more"

    /// What mends that content was answered `answer`, where no more is known of it than that.
    static func refusal(_ answer: ProbeAnswer, otherwise mends: [String]) -> [String] {
        answer.isTooLarge ? [size] : mends
    }

    /// The first two words of a mend, by which nginx knows the directive: `fastcgi_param SPOOLGATE_ORIGIN`.
    static func directive(of mend: String) -> [String] {
        let words = mend.split { " ;".contains($0) }.map(String.init)
        return Array(words.prefix(words.first == "fastcgi_param" ? 2 : 1))
    }

    static func origin(_ origin: String) -> String { "fastcgi_param SPOOLGATE_ORIGIN \(origin);" }
}
