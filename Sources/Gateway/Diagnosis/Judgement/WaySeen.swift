// The way to the gateway: whether it can be reached, who answers there, and which address it tells.
//
// Pure: what was seen, and what that means.

import HTTPTypes
import SpoolgateCurl
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// What connecting brought.
struct ReachSeen: Seen, Sendable, Equatable {
    var check: String { "reach" }
    /// Whether the URL is `https`.
    var isSecure: Bool
    /// The versions of HTTP that were asked for.
    var asked: [ClientRequest.Version]
    /// `TLS 1.3`; nil without TLS.
    var tls: String?
    /// Why there was no connection.
    var fault: ClientFault?
    /// Whether HTTP/2 was answered; nil: nobody asked, or nothing was answered at all.
    var hasHTTP2: Bool?
    /// What the server calls itself.
    var server: String?

    /// What it means.
    var finding: Finding {
        if let fault { return failure(fault.reason, [mend(fault)]) }
        let wanted = asked.contains(.http2)
        var text: String
        switch (asked.contains(.http1), hasHTTP2) {
        case (true, true?): text = "HTTP/1.1 and HTTP/2"
        case (true, _): text = "HTTP/1.1"
        case (false, true?): text = "HTTP/2"
        case (false, _): text = "connected"
        }
        text = "\(tls ?? "no TLS"), \(text)" + (server.map { ", \($0)" } ?? "")
        guard wanted, hasHTTP2 == false else { return ok(text) }
        if !isSecure {
            // Nobody expects it there, unless it is all that was asked for.
            return asked.contains(.http1)
                ? ok(text)
                : failure("no HTTP/2 without TLS", ["an https URL"])
        }
        text += "; HTTP/2 is not offered"
        return asked.contains(.http1) ? warning(text, [Mend.http2]) : failure(text, [Mend.http2])
    }

    private func mend(_ fault: ClientFault) -> String {
        switch fault.kind {
        case .noAddress: "look at the host's name, and at its record in the DNS"
        case .noTLS: mend(fault.tls ?? .handshake)
        default:
            fault.tls.map { mend($0) }
                ?? "look whether nginx runs and listens there, and at what stands before it"
        }
    }

    private func mend(_ trouble: TLSTrouble) -> String {
        switch trouble {
        case .expired: "ssl_certificate: a new one, this one has expired; then nginx -s reload"
        case .notYetValid: "date  (the clock here, or there: the certificate is not valid yet)"
        case .authority:
            "--cacert FILE for an authority of one's own; else ssl_certificate: with the certificates of "
                + "the authorities between behind it"
        case .name: "ssl_certificate: one with the host's name in it; or that name in the URL"
        case .authoritiesFile, .clientCertificate: "--cacert: a PEM file of certificates"
        case .notTLS: "listen 443 ssl;  (that port speaks no TLS); or an http URL"
        case .silence, .ended:
            "listen 443 ssl;  (that port may speak no TLS); or an http URL; look also at what stands before "
                + "nginx"
        case .distrust, .handshake:
            "ssl_protocols TLSv1.2 TLSv1.3;  (look also at ssl_certificate and ssl_ciphers)"
        }
    }
}

/// What the first creation brought.
struct GatewaySeen: Seen, Sendable, Equatable {
    var check: String { "gateway" }
    /// The answer to it.
    var answer: ProbeAnswer
    /// The answer to OPTIONS; asked only where there was none to the creation.
    var options: ProbeAnswer?
    /// Where it was sent.
    var url: ProbeURL
    /// The interop version that it speaks with us.
    var version: Int?
    /// The login that was sent with it.
    var login = ProbeLogin.none

    /// Whether the creation was refused for want of a login.
    var wantsLogin: Bool { answer.status == 401 || answer.code == "anonymous-refused" }

    /// Whether the gateway took the creation.
    var isTaken: Bool {
        answer.status == 201 && answer[.location] != nil && answer[.uploadOffset] != nil
            && version != nil
    }

    /// Whether something else than the gateway knew nothing of the path.
    var isElsewhere: Bool {
        [404, 405].contains(answer.status) && answer.code == nil
    }

    /// What it means.
    var finding: Finding {
        if isTaken {
            let limits = ProbeLimits(answer.head?.fields ?? [:]).maxSize.map {
                ", uploads of up to \(ByteSize.rounded($0))"
            }
            return ok("interop version \(version ?? 0)\(limits ?? "")")
        }
        let (text, mends) = refusal
        return failure(text, mends)
    }

    private var refusal: (String, [String]) {
        let told = answer.description
        guard answer.head != nil else { return unanswered }
        if let code = answer.code { return (told, mends(ofCode: code)) }
        if isElsewhere {
            return (
                "\(told): no location of nginx hands \(url.path) to the gateway",
                [Mend.snippet + "  (in this server block; it serves /files/)"]
            )
        }
        switch answer.status {
        case 400 where answer.content.contains("plain HTTP request was sent to HTTPS port"):
            return (
                "\(told): that port speaks TLS",
                [url.text.replacing("http:", with: "https:", maxReplacements: 1)]
            )
        case 401: return refusedLogin
        case 403 where login != .none:
            return (
                "\(told): it lets nobody in, or not from here, or has no file of passwords",
                ["allow, deny: in the location", Mend.passwords, Mend.errorLog]
            )
        case 403:
            return ("\(told): nobody may, or not from here", ["allow, deny: in the location"])
        case 500:
            return (
                "\(told): it cannot ask who may upload, or cannot read the file of passwords",
                [Mend.errorLog, Mend.passwords, "auth_request: look whether that service runs"]
            )
        case 413: return (told, [Mend.size])
        case 502, 503, 504:
            return ("\(told): nginx does not reach the gateway", [Mend.units, Mend.local])
        case 200..<300:
            return (
                "\(told): an answer without an upload resource", [Mend.snippet, Mend.location]
            )
        case 300..<400:
            let target = answer[.location].map { " to \($0)" } ?? ""
            return ("\(told): redirected\(target)", ["name the URL that clients upload to"])
        default: return (told, [Mend.location])
        }
    }

    /// A login that is missing, or was refused.
    private var refusedLogin: (String, [String]) {
        let told = answer.description
        let realm = answer[.wwwAuthenticate].map { " (\($0))" } ?? ""
        switch login {
        case .none:
            let isBasic = answer[.wwwAuthenticate]?.lowercased().hasPrefix("basic") ?? false
            return (
                "\(told): a login stands in front\(realm)",
                [isBasic ? Mend.credentials : "-H 'Authorization: ...'"]
            )
        case .malformed:
            return (
                "\(told): Authorization in -H is not 'Basic ' and a name and a password in Base64\(realm)",
                [Mend.credentials]
            )
        case .password(let name):
            return (
                "\(told): the name '\(name)' and its password in -H are refused\(realm)",
                [
                    "another password in -H; or, on the server, take the line of that name out of the file in "
                        + "auth_basic_user_file, then",
                    Mend.addUser(name, to: "FILE"), Mend.local,
                ]
            )
        case .other(let scheme):
            return (
                "\(told): the credentials in -H (\(scheme)) are refused\(realm)",
                ["other credentials in -H: these may have expired"]
            )
        }
    }

    private var unanswered: (String, [String]) {
        if let reason = answer.fault?.reason, reason.contains("HTTP/0.9") {
            return (
                "what answers a creation is not HTTP/1.1: that port speaks HTTP/2 without TLS",
                [
                    "listen 80;  (without http2: before 1.25.1 nginx speaks nothing else on such a port)"
                ]
            )
        }
        let mends = [Mend.units, Mend.local]
        if let options, [502, 503, 504].contains(options.status), !options.isProblem {
            return (
                "nginx does not reach the gateway: no answer to a creation, \(options.status) to "
                    + "OPTIONS", mends
            )
        }
        return ("to a creation \(answer.description)", mends)
    }

    private func mends(ofCode code: String) -> [String] {
        switch code {
        case "front-misconfigured": [Mend.location]
        case "unknown-route":
            ["fastcgi_param SPOOLGATE_ROUTE default;  (one of the routes in spoolgate.yaml)"]
        case "anonymous-refused" where login == .none:
            [Mend.credentials, Mend.login, Mend.passwords, Mend.owner]
        case "anonymous-refused": [Mend.login, Mend.passwords, Mend.owner]
        case "check-unavailable": ["authorize: in spoolgate.yaml; look whether that service runs"]
        case "client-too-many-requests": ["limit_conn, limit_req: wait, and probe again"]
        default: ["journalctl -u spoolgate; the codes stand in spoolgate(8)"]
        }
    }
}

/// What a login brought that nobody has, where one is asked for.
struct LoginSeen: Seen, Sendable, Equatable {
    var check: String { "login" }
    /// The answer to a creation with a name and a password that were made up.
    var answer: ProbeAnswer

    /// What it means.
    var finding: Finding {
        let text = "a made-up name and password got \(answer.description)"
        switch (answer.status, answer.code) {
        case (201, _):
            return failure(
                "a made-up name and password were taken: anybody gets in, by any name",
                [Mend.login, Mend.passwords, Mend.all, Mend.owner]
            )
        case (401, _), (403, _?): return ok(text)
        // nginx refuses a wrong password with 401.
        case (403, nil):
            return warning(
                "\(text): so nginx answers every login if the file of passwords is not there",
                [Mend.passwords, Mend.errorLog]
            )
        case (500, nil):
            return failure(
                "\(text): so nginx answers every login if its workers may not read the file of passwords",
                [Mend.passwords, Mend.errorLog]
            )
        default: return skipped(text)
        }
    }
}

/// The address that a creation's answer told.
struct LocationSeen: Seen, Sendable, Equatable {
    var check: String { "location" }
    /// `Location` as it came.
    var location: String
    /// Where the creation was sent.
    var url: ProbeURL

    /// What it means.
    var finding: Finding {
        let mend = [Mend.origin(url.origin)]
        guard let told = ProbeURL(location) else {
            guard location.hasPrefix("/") else {
                return failure("'\(location)' is no address", mend)
            }
            return warning("only a path, on which some clients fail", mend)
        }
        guard !told.hasSameOrigin(as: url) else { return ok("on \(told.origin)") }
        return warning("clients are sent to \(told.origin), not back to \(url.origin)", mend)
    }
}

/// Which names below the URL reach the gateway: nginx may have another location for an ending.
struct NamesSeen: Seen, Sendable, Equatable {
    var check: String { "names" }
    /// One creation.
    struct Creation: Sendable, Equatable {
        /// The last part of its path.
        var name: String
        /// The answer to it.
        var answer: ProbeAnswer
    }

    /// Endings for which web servers have locations: scripts, images, what a page consists of, archives, films, and
    /// names that begin with a dot.
    static let endings = [
        ".php", ".jpg", ".png", ".gif", ".svg", ".css", ".js", ".html", ".txt", ".pdf", ".zip",
        ".mp4", "/.htaccess",
    ]

    /// The creations.
    var creations: [Creation]
    /// The directory, with a slash at its end.
    var directory: String

    /// Makes it.
    init(_ creations: [(name: String, answer: ProbeAnswer)], below directory: String) {
        self.creations = creations.map { Creation(name: $0.name, answer: $0.answer) }
        self.directory = directory
    }

    /// Whether the gateway itself answered a creation.
    static func isTaken(_ answer: ProbeAnswer) -> Bool {
        answer.code != nil || (answer.status == 201 && answer[.uploadOffset] != nil)
    }

    /// What it means.
    var finding: Finding {
        let wrong = creations.filter { !Self.isTaken($0.answer) }
        guard let first = wrong.first else {
            return ok("\(creations.count) endings of file names reach the gateway")
        }
        let others = wrong.dropFirst().map(\.name)
        return failure(
            "\(directory)\(first.name): \(first.answer.description): another location takes it"
                + (others.isEmpty ? "" : ", and \(others.joined(separator: ", "))"),
            ["location ^~ \(directory) {"]
        )
    }
}
