// Log lines about the web server and its connections to the daemon.

import Logging
import SpoolgateExchange
package import SpoolgatePosix
package import SpoolgateUploadProtocol

extension Log {
    // MARK: The web server

    /// Logs that the FastCGI listener could not accept a connection or start a thread.
    package func listenerFailed(_ reason: String) {
        write(.error, "FastCGI listener failed") { ["reason": reason] }
    }

    /// Logs that the admin socket is unavailable, so that commands cannot reach this process.
    package func adminUnavailable(reason: String) {
        write(.error, "admin socket unavailable") { ["reason": reason] }
    }

    /// Logs that only `maximum` of `wanted` concurrent requests are served, for lack of file descriptors.
    package func threadsLowered(to maximum: Int, from wanted: Int, descriptors: Int) {
        let advice =
            "raise the limit on open files (LimitNOFILE) to \(wanted * ThreadBudget.ofRequest + 2000), "
            + "or lower threads.maximum"
        write(.warning, "threads.maximum lowered") {
            ["threads": maximum, "descriptors": descriptors, "advice": advice]
        }
    }

    /// Logs that a connection sent no valid FastCGI request in time.
    package func noRequest() { write(.debug, "connection without a request") }

    /// Logs that a response ended before its announced length; the web server then closes the client's connection.
    package func incompleteResponse() { write(.debug, "response incomplete") }

    /// Logs that a client disconnected before its request ended.
    package func clientGone(route: String, target: String, reason: String) {
        write(.debug, "client disconnected") {
            ["route": route, "target": shown(target), "reason": reason]
        }
    }

    /// Logs that most fields of a response were dropped, because their `bytes` bytes are too many for web servers.
    package func headCut(upload: UploadID?, bytes: Int) {
        write(.warning, "response fields dropped") { ["upload": upload, "field-bytes": bytes] }
    }

    /// Logs that a response field such as `X-Accel-Redirect` is ignored, because only a web server of the upstream
    /// would act on it.
    package func steeringIgnored(route: String, field: String) {
        write(.warning, "upstream field ignored") { ["route": route, "field": field] }
    }

    /// Logs a redirect that the setting `redirects` does not name, and that the gateway therefore judged by its host.
    ///
    /// `isResponse` is true if the redirect was taken for the application's answer.
    package func redirectUnlisted(route: String, status: Int, place: String, isResponse: Bool) {
        let meaning =
            isResponse
            ? "it was followed, or taken for the application's answer; if it leads to a login, name it in redirects.login, otherwise in "
                + "redirects.success"
            : "it leads to another host and was not taken for success; if it follows an accepted upload, name it in "
                + "redirects.success, and a login in redirects.login"
        write(.warning, "redirect not listed") {
            ["route": route, "status": status, "place": place, "reason": meaning]
        }
    }

    /// Logs that the gateway received `count` of its own requests since the last such line.
    package func cameBack(route: String, target: String, count: Int) {
        write(.error, "request loop detected") {
            ["route": route, "target": shown(target), "requests": count]
        }
    }

    /// Logs `count` requests with an unknown interop version of the upload protocol since the last such line.
    package func unknownVersion(_ version: Int, servedAs newest: Int, count: Int) {
        write(.warning, "unknown interop version") {
            [
                "version": version, "requests": count,
                "setting": "interop-alias: {\(version): \(newest)}",
            ]
        }
    }

    // MARK: Faults

    /// Logs that the web server does not pass required FastCGI parameters; `count` requests failed since the last such
    /// line.
    package func webServerMisconfigured(reason: String, count: Int) {
        write(.error, "web server misconfigured") {
            [
                "directive": "include /usr/share/spoolgate/nginx/params.conf;",
                "requests": count, "reason": Self.clause(reason),
            ]
        }
    }

    /// Logs that the web server does not pass `SPOOLGATE_ORIGIN`, the scheme, host and port that clients use, for a
    /// route.
    package func noOrigin(route: String) {
        write(.warning, "SPOOLGATE_ORIGIN is not set") {
            ["route": route, "directive": Self.originDirective]
        }
    }

    /// Logs that a route's `SPOOLGATE_ORIGIN` is invalid, in `count` requests since the last such line.
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

    /// Logs that nginx does not report whether it buffers uploads.
    ///
    /// nginx buffers by default, so the operator should check.
    package func webServerMayBuffer(route: String, count: Int) {
        write(.warning, "request buffering cannot be detected") {
            [
                "route": route, "directive": "include /usr/share/spoolgate/nginx/location*.conf;",
                "requests": count,
            ]
        }
    }

    /// Logs that the web server stores the whole content of uploads before passing it on, so that uploads cannot be
    /// resumed.
    package func webServerBuffers(route: String, count: Int) {
        write(.warning, "request buffering is enabled") {
            [
                "route": route, "directive": "fastcgi_request_buffering off;", "requests": count,
            ]
        }
    }

    /// Logs that nginx could not write content to a file of the spool; the content then passes through the gateway.
    package func webServerCannotWrite(_ error: SystemError) {
        write(.warning, "nginx spool write failed") { ["reason": error.description] }
    }

    /// Logs that the web server passes a route that is not in the settings; `count` requests were refused since the
    /// last such line.
    package func unknownRoute(_ route: String, target: String, count: Int) {
        write(.error, "unknown route") {
            ["route": route, "target": shown(target), "requests": count]
        }
    }
}
