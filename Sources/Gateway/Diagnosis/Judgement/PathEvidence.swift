// The checks of the path to the gateway: connection, creation, login, `Location` and file names. Pure.

import HTTPTypes
import SpoolgateCurl
import SpoolgateTextFormats
import SpoolgateUploadProtocol

struct ReachEvidence: Evidence, Sendable, Equatable {
    var check: String { "reach" }
    var isSecure: Bool
    /// The versions of HTTP to test.
    var versions: [ClientRequest.Version]
    /// The version of TLS, such as `TLS 1.3`; nil without TLS.
    var tls: String?
    /// The error; nil if the connection succeeded.
    var fault: ClientFault?
    /// Whether the server supports HTTP/2; nil if HTTP/2 was not tested or the server did not respond.
    var hasHTTP2: Bool?
    /// The field `Server` of the response.
    var server: String?

    var finding: Finding {
        if let fault { return failure(fault.reason, fix(fault)) }
        var text: String
        switch (versions.contains(.http1), hasHTTP2) {
        case (true, true?): text = "HTTP/1.1 and HTTP/2"
        case (true, _): text = "HTTP/1.1"
        case (false, true?): text = "HTTP/2"
        case (false, _): text = "connected"
        }
        text = "\(tls ?? "no TLS"), \(text)" + (server.map { ", \($0)" } ?? "")
        guard versions.contains(.http2), hasHTTP2 == false else { return ok(text) }
        if !isSecure {
            // HTTP/2 without TLS is a failure only if no other version was to be tested.
            return versions.contains(.http1)
                ? ok(text)
                : failure("no HTTP/2 without TLS", "use an https URL")
        }
        text += "; HTTP/2 is not offered"
        return versions.contains(.http1) ? warning(text, Fix.http2) : failure(text, Fix.http2)
    }

    private func fix(_ fault: ClientFault) -> String {
        switch fault.kind {
        case .noAddress: "check the host name and its DNS record"
        case .noTLS: fix(fault.tls ?? .handshake)
        default:
            fault.tls.map { fix($0) }
                ?? "check that nginx runs and listens there, and any firewall or proxy in front"
        }
    }

    private func fix(_ problem: TLSProblem) -> String {
        switch problem {
        case .expired:
            "ssl_certificate: install a new certificate, this one has expired; then nginx -s reload"
        case .notYetValid:
            "date  (this machine's clock or the server's is wrong: the certificate is not valid yet)"
        case .authority:
            "--cacert FILE for a private authority; otherwise append the intermediate certificates to "
                + "the file in ssl_certificate"
        case .name:
            "ssl_certificate: a certificate with the host's name; or a name of this certificate in the URL"
        case .authoritiesFile, .clientCertificate: "--cacert: a PEM file of certificates"
        case .notTLS: "listen 443 ssl;  (this port does not speak TLS); or use an http URL"
        case .silence, .ended:
            "listen 443 ssl;  (this port may not speak TLS); or use an http URL; also check any proxy in "
                + "front of nginx"
        case .distrust, .handshake:
            "ssl_protocols TLSv1.2 TLSv1.3;  (also check ssl_certificate and ssl_ciphers)"
        }
    }
}

/// The result of the first creation.
struct GatewayEvidence: Evidence, Sendable, Equatable {
    var check: String { "gateway" }
    var response: ProbeResponse
    /// The response to OPTIONS, or nil if the creation already got a response.
    var options: ProbeResponse?
    var url: ProbeURL
    /// The interop version on which the probe and the gateway agreed, if any.
    var version: Int?
    var login = ProbeLogin.none

    var wantsLogin: Bool { response.status == 401 || response.code == "anonymous-refused" }

    /// Whether the gateway accepted the creation.
    var isTaken: Bool {
        response.status == 201 && response[.location] != nil && response[.uploadOffset] != nil
            && version != nil
    }

    var finding: Finding {
        if isTaken {
            let limits = ProbeLimits(response.head?.fields ?? [:]).maxSize.map {
                ", uploads of up to \(ByteSize.rounded($0))"
            }
            return ok("interop version \(version ?? 0)\(limits ?? "")")
        }
        if response.head == nil { return noResponse }
        if let code = response.code { return failure(response.description, fixes(ofCode: code)) }
        return refusal
    }

    /// Returns a failure whose text begins with the response.
    private func failure(with words: String, _ fixes: [String]) -> Finding {
        failure("\(response.description): \(words)", fixes)
    }

    /// The finding for a response of a server other than the gateway.
    private var refusal: Finding {
        let access = "check allow and deny in the location"
        switch response.status {
        case 404, 405:
            return failure(
                with: "no nginx location passes \(url.path) to the gateway",
                [Fix.snippet + "  (in this server block; it serves /files/)"]
            )
        case 400 where response.content.contains("plain HTTP request was sent to HTTPS port"):
            let fix = url.text.replacing("http:", with: "https:", maxReplacements: 1)
            return failure(with: "this port speaks TLS", [fix])
        case 401: return refusedLogin
        case 403 where login != .none:
            return failure(
                with: "nginx admits no client, or not this one, or its password file is missing",
                [access, Fix.passwords, Fix.errorLog]
            )
        case 403: return failure(with: "nginx admits no client, or not this one", [access])
        case 500:
            return failure(
                with:
                    "nginx cannot reach its auth_request service, or cannot read its password file",
                [Fix.errorLog, Fix.passwords, "check that the auth_request service runs"]
            )
        case 413: return failure(response.description, Fix.size)
        case 502, 503, 504:
            return failure(with: "nginx does not reach the gateway", [Fix.units, Fix.local])
        case 200..<300:
            let fixes = [Fix.snippet, Fix.location]
            return failure(with: "a response without an upload resource", fixes)
        case 300..<400:
            let target = response[.location].map { " to \($0)" } ?? ""
            return failure(with: "redirected\(target)", ["probe the URL that it redirects to"])
        default: return failure(response.description, Fix.location)
        }
    }

    private var refusedLogin: Finding {
        let realm = response[.wwwAuthenticate].map { " (\($0))" } ?? ""
        switch login {
        case .none:
            let isBasic = response[.wwwAuthenticate]?.lowercased().hasPrefix("basic") ?? false
            let fix = isBasic ? Fix.credentials : "-H 'Authorization: ...'"
            return failure(with: "a login is required\(realm)", [fix])
        case .malformed:
            return failure(
                with: "Authorization in -H is not 'Basic ' and NAME:PASSWORD in Base64\(realm)",
                [Fix.credentials]
            )
        case .password(let name):
            return failure(
                with: "the name '\(name)' and its password in -H are refused\(realm)",
                [
                    "use another password in -H; or, on the server, remove the name's line from the file "
                        + "in auth_basic_user_file, then",
                    Fix.addUser(name, to: "FILE"), Fix.local,
                ]
            )
        case .other(let scheme):
            return failure(
                with: "the credentials in -H (\(scheme)) are refused\(realm)",
                ["use other credentials in -H: these may have expired"]
            )
        }
    }

    private var noResponse: Finding {
        if let reason = response.fault?.reason, reason.contains("HTTP/0.9") {
            return failure(
                "the response to a creation is not HTTP/1.1: this port speaks HTTP/2 without TLS",
                "listen 80;  (without http2: before 1.25.1 nginx speaks nothing else on such a port)"
            )
        }
        var text = "the creation failed: \(response.description)"
        if let options, [502, 503, 504].contains(options.status), !options.isProblem {
            text =
                "nginx does not reach the gateway: no response to a creation, \(options.status) to "
                + "OPTIONS"
        }
        return failure(text, [Fix.units, Fix.local])
    }

    private func fixes(ofCode code: String) -> [String] {
        switch code {
        case "front-misconfigured": [Fix.location]
        case "unknown-route":
            ["fastcgi_param SPOOLGATE_ROUTE default;  (one of the routes in spoolgate.yaml)"]
        case "anonymous-refused" where login == .none:
            [Fix.credentials, Fix.login, Fix.passwords, Fix.owner]
        case "anonymous-refused": [Fix.login, Fix.passwords, Fix.owner]
        case "check-unavailable": ["check that the service in authorize.url of spoolgate.yaml runs"]
        case "client-too-many-requests":
            [
                "wait, then probe again  (limits for each client: limit_conn and limit_req in nginx, "
                    + "clients.maximum-concurrent in spoolgate.yaml)"
            ]
        default: ["journalctl -u spoolgate  (spoolgate(8) explains the code)"]
        }
    }
}

/// The result of a creation with a made-up login, which a web server must refuse.
struct LoginEvidence: Evidence, Sendable, Equatable {
    var check: String { "login" }
    var response: ProbeResponse

    var finding: Finding {
        let text = "a made-up name and password got \(response.description)"
        switch (response.status, response.code) {
        case (201, _):
            return failure(
                "a made-up name and password were accepted: anyone can log in, under any name",
                [Fix.login, Fix.passwords, Fix.all, Fix.owner]
            )
        case (401, _), (403, _?): return ok(text)
        // nginx refuses a wrong password with 401, so this 403 has another cause.
        case (403, nil):
            return warning(
                "\(text): nginx responds like this to every login if its password file is missing",
                [Fix.passwords, Fix.errorLog]
            )
        case (500, nil):
            return failure(
                "\(text): nginx responds like this to every login if its workers may not read its password file",
                [Fix.passwords, Fix.errorLog]
            )
        default: return skipped(text)
        }
    }
}

/// Whether the creation's `Location` has the origin of the probed server.
struct LocationEvidence: Evidence, Sendable, Equatable {
    var check: String { "location" }
    var location: String
    var url: ProbeURL

    var finding: Finding {
        let fix = Fix.origin(url.origin)
        guard let text = ProbeURL(location) else {
            guard location.hasPrefix("/") else {
                return failure("Location '\(location)' is not a URL", fix)
            }
            return warning("Location is only a path, which some clients do not support", fix)
        }
        guard !text.hasSameOrigin(as: url) else { return ok("Location is on \(text.origin)") }
        return warning("Location sends clients to \(text.origin), not to \(url.origin)", fix)
    }
}

/// Whether file names with common endings, such as `.php`, reach the gateway rather than other locations.
struct NamesEvidence: Evidence, Sendable, Equatable {
    var check: String { "names" }
    struct Creation: Sendable, Equatable {
        var name: String
        var response: ProbeResponse
    }

    static let endings = [
        ".php", ".jpg", ".png", ".gif", ".svg", ".css", ".js", ".html", ".txt", ".pdf", ".zip",
        ".mp4", "/.htaccess",
    ]

    var creations: [Creation]
    /// The URL path before each name, with a slash at the end.
    var directory: String

    /// Takes file names below the URL path `directory`, with the responses to creations.
    init(_ creations: [(name: String, response: ProbeResponse)], below directory: String) {
        self.creations = creations.map { Creation(name: $0.name, response: $0.response) }
        self.directory = directory
    }

    /// Returns whether the response comes from the gateway.
    static func isTaken(_ response: ProbeResponse) -> Bool {
        response.code != nil || (response.status == 201 && response[.uploadOffset] != nil)
    }

    var finding: Finding {
        let wrong = creations.filter { !Self.isTaken($0.response) }
        guard let first = wrong.first else {
            return ok("names with \(creations.count) different endings reach the gateway")
        }
        let others = wrong.dropFirst().map(\.name)
        return failure(
            "\(directory)\(first.name): \(first.response.description): another location takes it"
                + (others.isEmpty ? "" : ", and \(others.joined(separator: ", "))"),
            "location ^~ \(directory) {"
        )
    }
}
