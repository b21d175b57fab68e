// The lines of the front: what the web server does, and what is wrong with its configuration. The others
// are in Log and LogChecks.

import Exchange
import Logging
package import UploadProtocol

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
            metadata: ["route": "\(route)", "target": "\(shown(target))", "reason": "\(reason)"]
        )
    }

    /// A response's head was too large for web servers in front; most of its fields were left out.
    package func headCut(upload: UploadID?, bytes: Int) {
        logger.warning(
            "response head cut",
            metadata: ["upload": "\(upload.map(\.description) ?? "-")", "bytes": "\(bytes)"]
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
                "directive": "\(Self.originDirective)",
            ]
        )
    }

    /// What the web server passes as a route's origin is none.
    package func badOrigin(_ text: String, route: String, count: Int) {
        logger.warning(
            "front tells a bad origin",
            metadata: [
                "route": "\(route)", "origin": "\(text.prefix(100))", "count": "\(count)",
                "directive": "\(Self.originDirective)",
            ]
        )
    }

    private static let originDirective =
        "fastcgi_param SPOOLGATE_ORIGIN $scheme://$host:$server_port;"

    /// An nginx does not say whether it keeps whole uploads before it passes them on, as it does by
    /// itself.
    package func frontMayBuffer(route: String, count: Int) {
        logger.warning(
            "front may buffer uploads",
            metadata: [
                "route": "\(route)",
                "directive": "include /usr/share/spoolgate/nginx/location*.conf;",
                "count": "\(count)",
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
            metadata: ["route": "\(route)", "target": "\(shown(target))", "count": "\(count)"]
        )
    }
}

extension ResponseHead {
    /// The head as it can be relayed, with a log line where that is not all of it.
    package func fitting(telling log: Log, upload: UploadID? = nil) -> ResponseHead {
        guard fieldBytes > Self.mostFieldBytes else { return self }
        log.headCut(upload: upload, bytes: fieldBytes)
        return fitting
    }
}
