// Whether nginx writes content into the spool directly, and why not.
//
// Pure. A problem that another check reports is not reported again.

import SpoolgateExchange
import SpoolgateTextFormats

/// The directives and limits that decide whether nginx writes content into the spool.
package struct NginxLane: Sendable, Equatable {
    /// The directive `spool_receive` in effect, if any.
    var directive: NginxDirective?
    /// Whether nginx buffers content before passing a request on (`fastcgi_request_buffering`).
    var isBuffering = false
    /// Whether nginx may connect over a unix socket, so that the gateway can pass it a file descriptor.
    var passesFiles = true
    /// Whether nginx's files load or use `ngx_http_interim_module`.
    var hasModule = true
}

extension NginxDirective {
    var saysOff: Bool { arguments.first?.lowercased() == "off" }
}

struct ReceiveEvidence: Evidence, Sendable, Equatable {
    var check: String { "receive" }
    /// The route, or nil for the route of the probed URL.
    var route: String?
    /// How the last large content reached the spool; nil if unknown.
    var path: ContentPath?
    /// The settings in nginx's files; nil if the files were not read.
    var nginx: NginxLane?

    var finding: Finding {
        switch path {
        case .used?: ok(text(inUse))
        case .off?, .shared?: ok(notInUse(path?.reason ?? ""))
        case .notOffered?, nil: notOffered
        case .unusable?:
            warning(
                notInUse(path?.reason ?? ""),
                [
                    "allow nginx in AppArmor or SELinux to write the files of the spool, then reload the "
                        + "gateway",
                    "spool-receive: off  (of the route in spoolgate.yaml, if nginx should not write them)",
                ]
            )
        case .digest?, .length?, .ordinary?, .full?, .small?: skipped(notInUse(path?.reason ?? ""))
        }
    }

    private func text(_ text: String) -> String { (route.map { "\($0): " } ?? "") + text }

    private func notInUse(_ reason: String) -> String { text("not in use: \(reason)") }

    private var inUse: String {
        var text = "in use: nginx writes content into the spool"
        guard let directive = nginx?.directive else { return text }
        let isWorker = directive.arguments.first == "worker"
        text += isWorker ? " in its workers" : " on threads"
        text += " (\(directive.text))"
        if isWorker { text += "; a stalled disk stalls the workers and all their clients" }
        return text
    }

    private var notOffered: Finding {
        guard let nginx else {
            return skipped(
                path == nil
                    ? text("no large content was received yet")
                    : notInUse("the web server did not offer to write content")
            )
        }
        guard nginx.hasModule else {
            return skipped(notInUse("nginx's files do not load ngx_http_interim_module"))
        }
        if nginx.isBuffering {
            return skipped(notInUse("nginx buffers content (fastcgi_request_buffering on)"))
        }
        if !nginx.passesFiles {
            return ok(notInUse("nginx reaches the gateway by TCP, which cannot pass files"))
        }
        guard let directive = nginx.directive else {
            // The file to include from an older package of the module does not set `spool_receive`.
            return warning(
                notInUse("no spool_receive applies to the location"),
                [Fix.location, Fix.module]
            )
        }
        guard !directive.saysOff else {
            return ok(notInUse("'\(directive.text)' at \(directive.place)"))
        }
        guard path != nil else { return skipped(text("no large content was received yet")) }
        return warning(
            notInUse(
                "nginx did not offer to write, although '\(directive.text)' is set at \(directive.place)"
            ),
            [
                "nginx -s reload", Fix.module,
                "use an nginx built --with-threads (see nginx -V): spool_receive on needs threads",
            ]
        )
    }
}
