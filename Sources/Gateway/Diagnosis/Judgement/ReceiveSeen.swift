// Whether nginx writes content into the spool by itself, and if not, why.
//
// Pure: what was seen, and what that means. What another check complains of is no second complaint here.

import SpoolgateExchange
import SpoolgateTextFormats

/// What nginx's files and processes say of content that nginx may write into the spool.
package struct NginxLane: Sendable, Equatable {
    /// The directive `spool_receive` that is in force; nil: there is none.
    var directive: NginxDirective?
    /// Whether nginx gathers content before it hands it on (`fastcgi_request_buffering`).
    var isBuffering = false
    /// Whether the gateway is reached by a unix socket, by which alone a file can be passed.
    var passesFiles = true
    /// Whether nginx's files load the module, or use it.
    var hasModule = true
    /// The limit on the size of its workers' files in bytes; nil: none, or this process may not see.
    var fileSizeLimit: Int64?

    /// Whether the directive is there and does not say `off`.
    var isOn: Bool { directive.map { !$0.saysOff } ?? false }
}

extension NginxDirective {
    /// Whether it switches something off.
    var saysOff: Bool { arguments.first?.lowercased() == "off" }
}

/// Which path content took into the spool.
struct ReceiveSeen: Seen, Sendable, Equatable {
    var check: String { "receive" }
    /// The route; nil: that of the URL that is probed.
    var route: String?
    /// The path of the last large content; nil: none is known.
    var path: ContentPath?
    /// What nginx says; nil: its files were not read.
    var nginx: NginxLane?

    /// What it means.
    var finding: Finding {
        switch path {
        case .taken?: ok(text(inUse))
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
        case .digest?, .ordinary?, .full?, .small?: skipped(notInUse(path?.reason ?? ""))
        }
    }

    private func text(_ text: String) -> String { (route.map { "\($0): " } ?? "") + text }

    private func notInUse(_ reason: String) -> String { text("not in use: \(reason)") }

    private var inUse: String {
        var text = "in use: nginx writes content into the spool"
        guard let nginx else { return text }
        if let directive = nginx.directive {
            let isWorker = directive.arguments.first == "worker"
            text += isWorker ? " in its workers" : " on threads"
            text += " (\(directive.text))"
            if isWorker { text += "; a stalled disk stalls the workers and all their clients" }
        }
        if let limit = nginx.fileSizeLimit {
            text += "; content beyond \(ByteSize.rounded(limit)) passes through the gateway"
        }
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
            // An older package of the module has an include without it.
            return warning(
                notInUse("no spool_receive applies to the location"),
                [Mend.location, Mend.module]
            )
        }
        guard nginx.isOn else {
            return ok(notInUse("'\(directive.text)' at \(directive.place)"))
        }
        guard path != nil else { return skipped(text("no large content was received yet")) }
        return warning(
            notInUse(
                "nginx did not offer to write, although '\(directive.text)' is set at \(directive.place)"
            ),
            [
                "nginx -s reload", Mend.module,
                "use an nginx built --with-threads (see nginx -V): spool_receive on needs threads",
            ]
        )
    }
}
