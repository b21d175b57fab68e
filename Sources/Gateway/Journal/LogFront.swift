// The lines about the web server in front, and about what passes between it and the daemon.

import Logging
import SpoolgateExchange
package import SpoolgatePosix
package import SpoolgateUploadProtocol

extension Log {
    // MARK: The front

    /// The front could not take a connection or start a thread.
    package func frontTrouble(_ reason: String) {
        write(.error, "FastCGI listener failed") { ["reason": reason] }
    }

    /// Nobody can ask how the daemon is.
    package func adminUnavailable(reason: String) {
        write(.error, "admin socket unavailable") { ["reason": reason] }
    }

    /// Fewer requests can be served at a time than the settings say, for want of descriptors.
    package func threadsLowered(to maximum: Int, from wanted: Int, descriptors: Int) {
        let advice =
            "raise the limit on open files (LimitNOFILE) to \(wanted * ThreadBudget.ofRequest + 2000), "
            + "or lower threads.maximum"
        write(.warning, "threads.maximum lowered") {
            ["maximum": maximum, "descriptors": descriptors, "advice": advice]
        }
    }

    /// Somebody connected and sent no FastCGI request, or not in time.
    package func noRequest() { write(.debug, "connection without a request") }

    /// An answer ended before its announced length; the web server breaks the client's connection.
    package func incompleteAnswer() { write(.debug, "response incomplete") }

    /// The client was not there any more, or its content broke off; nobody else is at fault.
    package func clientGone(route: String, target: String, reason: String) {
        write(.debug, "client disconnected") {
            ["route": route, "target": shown(target), "reason": reason]
        }
    }

    /// A response's head was too large for web servers in front; most of its fields were left out.
    package func headCut(upload: UploadID?, bytes: Int) {
        write(.warning, "response fields dropped") { ["upload": upload, "bytes": bytes] }
    }

    /// An upstream's response asks the web server in front of it for something that this one does not do.
    package func steeringIgnored(route: String, field: String) {
        write(.warning, "upstream field ignored") { ["route": route, "field": field] }
    }

    /// A request that this gateway has sent came back to it.
    package func cameBack(route: String, target: String, count: Int) {
        write(.error, "request loop detected") {
            ["route": route, "target": shown(target), "count": count]
        }
    }

    /// Clients name a version of the upload protocol that this release does not know.
    package func unknownVersion(_ version: Int, servedAs newest: Int, count: Int) {
        write(.warning, "unknown interop version") {
            [
                "version": version, "count": count,
                "setting": "interop-alias: {\(version): \(newest)}",
            ]
        }
    }

    // MARK: Faults

    /// The web server passes too few parameters, and every such request fails.
    package func frontMisconfigured(reason: String, count: Int) {
        write(.error, "web server misconfigured") {
            [
                "directive": "include /usr/share/spoolgate/nginx/params.conf;", "count": count,
                "reason": reason,
            ]
        }
    }

    /// The web server passes no origin for a route.
    package func noOrigin(route: String) {
        write(.warning, "SPOOLGATE_ORIGIN is not set") {
            ["route": route, "directive": Self.originDirective]
        }
    }

    /// What the web server passes as a route's origin is none.
    package func badOrigin(_ text: String, route: String, count: Int) {
        write(.warning, "SPOOLGATE_ORIGIN is invalid") {
            [
                "route": route, "origin": text.prefix(100), "count": count,
                "directive": Self.originDirective,
            ]
        }
    }

    private static let originDirective =
        "fastcgi_param SPOOLGATE_ORIGIN $scheme://$host:$server_port;"

    /// An nginx does not say whether it keeps whole uploads before it passes them on, as it does by
    /// itself.
    package func frontMayBuffer(route: String, count: Int) {
        write(.warning, "request buffering unknown") {
            [
                "route": route, "directive": "include /usr/share/spoolgate/nginx/location*.conf;",
                "count": count,
            ]
        }
    }

    /// The web server keeps whole uploads in files of its own before it passes them on.
    package func frontBuffers(route: String, count: Int) {
        write(.warning, "request buffering enabled") {
            ["route": route, "directive": "fastcgi_request_buffering off;", "count": count]
        }
    }

    /// nginx could not use a file of the spool that it was given to write content into.
    package func frontCannotWrite(_ error: SystemError) {
        write(.warning, "nginx spool write failed") { ["reason": error.description] }
    }

    /// The web server names a route that the settings do not have.
    package func unknownRoute(_ route: String, target: String, count: Int) {
        write(.error, "unknown route") {
            ["route": route, "target": shown(target), "count": count]
        }
    }
}
