// The lines of the front: what the web server does, and what is wrong with its configuration. The others
// are in Log and LogChecks.

import Logging

extension Log {
    /// The front could not take a connection or start a thread.
    package func frontTrouble(_ reason: String) {
        logger.error("front in trouble", metadata: ["reason": "\(reason)"])
    }

    /// Fewer requests can be served at a time than the settings say, for want of descriptors.
    package func threadsLowered(to maximum: Int, from wanted: Int, descriptors: Int) {
        let advice =
            "raise the limit of open files (LimitNOFILE) to \(wanted * ThreadBudget.ofRequest + 2000), "
            + "or lower threads.maximum"
        logger.warning(
            "threads.maximum lowered",
            metadata: [
                "maximum": "\(maximum)", "descriptors": "\(descriptors)", "advice": "\(advice)",
            ]
        )
    }

    /// Somebody connected and sent no FastCGI request, or not in time.
    package func noRequest() { logger.debug("connection without a request") }

    /// An answer ended before its announced length; the web server breaks the client's connection.
    package func incompleteAnswer() { logger.debug("answer incomplete") }

    /// The client was not there any more, or its content broke off; nobody else is at fault.
    package func clientGone(route: String, target: String, reason: String) {
        logger.debug(
            "client gone",
            metadata: ["route": "\(route)", "target": "\(target)", "reason": "\(reason)"]
        )
    }

    // MARK: Faults

    /// The web server passes too few parameters, and every such request fails.
    package func frontMisconfigured(reason: String, count: Int) {
        logger.error(
            "front misconfigured",
            metadata: [
                "directive": "include /usr/share/spoolgate/nginx/params.conf;",
                "count": "\(count)", "reason": "\(reason)",
            ]
        )
    }

    /// The web server passes no origin for a route.
    package func noOrigin(route: String) {
        logger.warning(
            "front tells no origin",
            metadata: [
                "route": "\(route)",
                "directive": "fastcgi_param SPOOLGATE_ORIGIN $scheme://$http_host;",
            ]
        )
    }

    /// The web server keeps whole uploads in files of its own before it passes them on.
    package func frontBuffers(route: String, count: Int) {
        logger.warning(
            "front buffers uploads",
            metadata: [
                "route": "\(route)", "directive": "fastcgi_request_buffering off;",
                "count": "\(count)",
            ]
        )
    }

    /// The web server names a route that the settings do not have.
    package func unknownRoute(_ route: String, target: String, count: Int) {
        logger.error(
            "unknown route",
            metadata: ["route": "\(route)", "target": "\(target)", "count": "\(count)"]
        )
    }
}
