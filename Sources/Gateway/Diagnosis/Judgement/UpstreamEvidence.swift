// The result of connecting to an upstream, an authorizer or the webhook. Pure.

import SpoolgateCurl
import SpoolgateTextFormats

struct UpstreamEvidence: Evidence, Sendable, Equatable {
    /// The kind of server: `upstream`, `authorizer` or `webhook`.
    var check: String
    /// The route, or `events` for the webhook.
    var name: String
    /// The server's address in the settings.
    var target: String
    /// The path of the unix socket, or nil if `target` is a URL.
    var socket: String?
    /// The file of trusted authorities, or nil for the system's.
    var authorities: String?
    /// The error; nil if the connection succeeded.
    var fault: ClientFault?
    /// Whether the server speaks TLS although its URL says `http`.
    var speaksTLS = false

    var finding: Finding {
        if speaksTLS {
            return failure(
                "\(name): \(target): this port speaks TLS, but \(setting) says http",
                "\(setting): \(other(scheme: "https"))  (in place of \(target))"
            )
        }
        guard let fault else { return ok("\(name): \(target) accepts connections") }
        // For a socket, libcurl's description already contains the path.
        let place = socket == nil ? "\(target): " : ""
        return failure("\(name): \(place)\(fault.reason)", fixes(fault))
    }

    // MARK: Advice

    private func fixes(_ fault: ClientFault) -> [String] {
        if let socket {
            return [
                "start the application that listens on \(socket), allow the daemon's user to connect, or "
                    + "name another socket in \(setting)"
            ]
        }
        if let tls = fault.tls { return fixes(tls) }
        switch fault.kind {
        case .noAddress:
            return ["getent hosts \(host)  (fix the name in \(setting), or the resolver)"]
        case .noConnection where fault.isLate:
            return [
                "check the firewalls on the way to \(host), and the port in \(setting): connections are "
                    + "neither accepted nor refused"
            ]
        default: return ["start the server at \(place), or name another one in \(setting)"]
        }
    }

    private func fixes(_ problem: TLSProblem) -> [String] {
        let look = "openssl s_client -connect \(place) -servername \(host) </dev/null 2>/dev/null"
        switch problem {
        case .expired:
            return [
                "renew the certificate of \(place): it has expired",
                "\(look) | openssl x509 -noout -dates",
            ]
        case .notYetValid:
            return [
                "date  (this machine's clock or the server's is wrong: the certificate of \(place) is not "
                    + "valid yet)",
                "\(look) | openssl x509 -noout -dates",
            ]
        case .authority:
            return [
                authorities.map {
                    "add the certificate of the authority of \(place) to \($0) (\(tls).ca)"
                }
                    ?? "\(tls).ca: a PEM file with the certificate of the authority of \(place), or with "
                    + "the certificate of \(place) itself if it is self-signed",
                "\(look) | openssl x509 -noout -issuer",
            ]
        case .name:
            return [
                "in \(setting), use one of the names in the certificate, or get a certificate for \(host)",
                "\(look) | openssl x509 -noout -ext subjectAltName",
            ]
        case .authoritiesFile:
            return [
                "\(tls).ca: a PEM file of certificates; \(authorities ?? "the system's") is not one"
            ]
        case .clientCertificate:
            return ["\(tls).certificate and \(tls).key: PEM files of a certificate and its key"]
        case .notTLS:
            return [
                "\(setting): \(other(scheme: "http"))  (this port does not speak TLS), or the port that does"
            ]
        case .silence, .ended:
            return [
                "\(setting): \(other(scheme: "http"))  (if this port speaks plain HTTP), or the port that "
                    + "speaks TLS", look,
            ]
        case .distrust, .handshake:
            return [
                look,
                "enable TLS 1.2 or newer on the server; set \(tls).certificate if it requires one",
            ]
        }
    }

    /// The prefix of the keys of the server's settings.
    private var section: String {
        switch check {
        case "webhook": "events.webhook"
        case "authorizer": "routes.\(name).authorize"
        default: "routes.\(name)"
        }
    }

    /// The key of the server's address in the settings.
    private var setting: String { section + (check == "upstream" ? ".upstream" : ".url") }

    /// The prefix of the keys of the server's TLS settings.
    private var tls: String { section + ".tls" }

    private var url: AbsoluteURL? { AbsoluteURL(target.dropFirst(scheme.count)) }

    /// The scheme of a store before the URL of its server, such as `s3:`; empty if `target` is the URL.
    private var scheme: Substring {
        let scheme = target.prefix { $0 != ":" }
        return target[scheme.endIndex...].hasPrefix(":http") ? target[...scheme.endIndex] : ""
    }

    private var host: String { url?.origin[1] ?? target }

    private var place: String { url.map { "\($0.origin[1]):\($0.origin[2])" } ?? target }

    /// Returns `target` with another scheme and an explicit port.
    private func other(scheme: String) -> String {
        guard let url else { return target }
        let path = url.path == "/" ? "" : url.path
        return "\(self.scheme)\(scheme)://\(place)\(path)"
    }
}
