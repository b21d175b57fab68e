// The log lines about the web server, and about its connections to the daemon.

import Logging
import SpoolgateExchange
package import SpoolgatePosix
package import SpoolgateUploadProtocol

extension Log {
    // MARK: The web server

    /// Logs that the FastCGI listener could not accept a connection or start a thread.
    package func frontTrouble(_ reason: String) {
        write(.error, "FastCGI listener failed") { ["reason": reason] }
    }

    /// Logs that the admin socket is unavailable to commands.
    package func adminUnavailable(reason: String) {
        write(.error, "admin socket unavailable") { ["reason": reason] }
    }

    /// Logs that descriptors limit concurrent requests to fewer than the settings say.
    package func threadsLowered(to maximum: Int, from wanted: Int, descriptors: Int) {
        let advice =
            "raise the limit on open files (LimitNOFILE) to \(wanted * ThreadBudget.ofRequest + 2000), "
            + "or lower threads.maximum"
        write(.warning, "threads.maximum lowered") {
            ["threads": maximum, "descriptors": descriptors, "advice": advice]
        }
    }

    /// Logs a connection without a valid FastCGI request in time.
    package func noRequest() { write(.debug, "connection without a request") }

    /// Logs a response that ended before its announced length; the web server closes the client's connection.
    package func incompleteAnswer() { write(.debug, "response incomplete") }

    /// Logs that the client was gone or its content ended early.
    package func clientGone(route: String, target: String, reason: String) {
        write(.debug, "client disconnected") {
            ["route": route, "target": shown(target), "reason": reason]
        }
    }

    /// Logs that most fields of a response were omitted because its head was too large for web servers.
    package func headCut(upload: UploadID?, bytes: Int) {
        write(.warning, "response fields dropped") { ["upload": upload, "field-bytes": bytes] }
    }

    /// Logs a field of an upstream's response that only the upstream's own web server would execute.
    package func steeringIgnored(route: String, field: String) {
        write(.warning, "upstream field ignored") { ["route": route, "field": field] }
    }

    /// Logs that the gateway received a request that it had sent itself.
    package func cameBack(route: String, target: String, count: Int) {
        write(.error, "request loop detected") {
            ["route": route, "target": shown(target), "requests": count]
        }
    }

    /// Logs that clients name an unknown version of the upload protocol.
    package func unknownVersion(_ version: Int, servedAs newest: Int, count: Int) {
        write(.warning, "unknown interop version") {
            [
                "version": version, "requests": count,
                "setting": "interop-alias: {\(version): \(newest)}",
            ]
        }
    }

    // MARK: Faults

    /// Logs that the web server omits required parameters, so that every such request fails.
    package func frontMisconfigured(reason: String, count: Int) {
        write(.error, "web server misconfigured") {
            [
                "directive": "include /usr/share/spoolgate/nginx/params.conf;",
                "requests": count, "reason": Self.clause(reason),
            ]
        }
    }

    /// Logs that the web server passes no origin for a route.
    package func noOrigin(route: String) {
        write(.warning, "SPOOLGATE_ORIGIN is not set") {
            ["route": route, "directive": Self.originDirective]
        }
    }

    /// Logs that the web server passes an invalid origin for a route.
    package func badOrigin(_ text: String, route: String, count: Int) {
        write(.warning, "SPOOLGATE_ORIGIN is invalid") {
            [
                "route": route, "origin": text.prefix(100), "requests": count,
                "directive": Self.originDirective,
            ]
        }
    }

    private static let originDirective =
        "fastcgi_param SPOOLGATE_ORIGIN $scheme://$host:$server_port;"

    /// Logs that nginx does not report whether it buffers uploads, which is its default.
    package func frontMayBuffer(route: String, count: Int) {
        write(.warning, "request buffering unknown") {
            [
                "route": route, "directive": "include /usr/share/spoolgate/nginx/location*.conf;",
                "requests": count,
            ]
        }
    }

    /// Logs that the web server stores uploads in its own files before it passes them on.
    package func frontBuffers(route: String, count: Int) {
        write(.warning, "request buffering enabled") {
            [
                "route": route, "directive": "fastcgi_request_buffering off;", "requests": count,
            ]
        }
    }

    /// Logs that nginx could not use a file of the spool to write content.
    package func frontCannotWrite(_ error: SystemError) {
        write(.warning, "nginx spool write failed") { ["reason": error.description] }
    }

    /// Logs that the web server names a route that is not in the settings.
    package func unknownRoute(_ route: String, target: String, count: Int) {
        write(.error, "unknown route") {
            ["route": route, "target": shown(target), "requests": count]
        }
    }
}
