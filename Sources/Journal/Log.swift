// Every line the daemon can write, one function each. Keys are the words of the settings and pages.

package import Exchange
import HTTPTypes
package import Logging
package import Posix
package import Spool
import TextFormats
package import UploadProtocol

/// The daemon's log.
package struct Log: Sendable {
    package let logger: Logger

    /// Whether targets are written with their queries, which may hold what proves who somebody is.
    private let showsQueries: Bool

    /// Writes through `logger`.
    package init(_ logger: Logger, showsQueries: Bool = false) {
        self.logger = logger
        self.showsQueries = showsQueries
    }

    func shown(_ target: String) -> String {
        target.shownTarget(withQuery: showsQueries)
    }

    /// The log with `correlation` in every line; as it is for nil.
    func correlated(_ correlation: String?) -> Log {
        guard let correlation else { return self }
        var logger = logger
        logger[metadataKey: "correlation"] = "\(correlation)"
        return Log(logger, showsQueries: showsQueries)
    }

    // MARK: The daemon's own life

    /// Requests are taken from now on.
    package func serving(listen: String, spool: String, routes: [String]) {
        logger.notice(
            "serving",
            metadata: [
                "listen": "\(listen)", "spool": "\(spool)",
                "routes": "\(routes.joined(separator: ","))",
            ]
        )
    }

    /// What recovery found in the spool.
    package func recovered(_ recovery: Recovery) {
        logger.notice(
            "spool recovered",
            metadata: [
                "uploads": "\(recovery.uploads)", "cut-back": "\(recovery.cutBack)",
                "interrupted": "\(recovery.interrupted)", "orphans": "\(recovery.orphans)",
                "forgotten": "\(recovery.forgotten)", "corrupt": "\(recovery.corrupt)",
                "failed": "\(recovery.failed)",
            ]
        )
    }

    /// Recovery moved an upload to `corrupt`.
    package func setAside(_ id: UploadID, reason: String) {
        logger.error("upload set aside", metadata: ["upload": "\(id)", "reason": "\(reason)"])
    }

    /// Recovery could not look at an upload, or at several, or not mend it.
    package func notRecovered(_ id: UploadID?, _ error: SpoolError) {
        logger.error(
            "upload not recovered",
            metadata: [
                "upload": "\(id.map(\.description) ?? "-")", "reason": "\(error.sentence)",
            ]
        )
    }

    /// New settings are in force; `unchanged` names those that need a restart.
    package func reloaded(unchanged: [String]) {
        logger.notice(
            "settings reloaded",
            metadata: unchanged.isEmpty
                ? [:] : ["need-restart": "\(unchanged.joined(separator: ","))"]
        )
    }

    /// New settings were refused; the old ones stay.
    package func reloadRefused(reason: String) {
        logger.error("settings not reloaded", metadata: ["reason": "\(reason)"])
    }

    /// The time of day is `lead` seconds ahead of the time that is known to have passed.
    package func clockDoubted(lead: Int64) {
        logger.warning("clock doubted", metadata: ["lead": "\(lead)"])
    }

    /// The time of day is believed again.
    package func clockBelieved() { logger.notice("clock believed", metadata: [:]) }

    /// The daemon stops taking requests.
    package func draining(signal: String) {
        logger.notice("draining", metadata: ["signal": "\(signal)"])
    }

    /// The daemon ends; `left` exchanges did not end in time.
    package func stopped(left: Int) {
        logger.notice("stopped", metadata: ["left": "\(left)"])
    }

    // MARK: An upload's life

    /// An upload resource was created.
    package func created(_ id: UploadID, route: String, method: String, target: String) {
        logger.info(
            "upload created",
            metadata: [
                "upload": "\(id)", "route": "\(route)", "method": "\(method)",
                "target": "\(shown(target))",
            ]
        )
    }

    /// Content of one request was received to its proper end.
    package func received(_ id: UploadID, offset: Int64) {
        logger.info("content received", metadata: ["upload": "\(id)", "offset": "\(offset)"])
    }

    /// Content ended early; what arrived is kept.
    package func interrupted(_ id: UploadID, offset: Int64, reason: ContentError) {
        logger.info(
            "upload interrupted",
            metadata: ["upload": "\(id)", "offset": "\(offset)", "reason": "\(reason)"]
        )
    }

    /// A delivery attempt begins.
    package func delivering(_ id: UploadID, length: Int64) {
        logger.info("delivering", metadata: ["upload": "\(id)", "length": "\(length)"])
    }

    /// The upstream took the upload: it answered with a status below 400.
    package func delivered(_ id: UploadID, status: Int) {
        logger.info("delivered", metadata: ["upload": "\(id)", "status": "\(status)"])
    }

    /// The upstream answered the upload with a status of 400 or above; the client gets that answer.
    package func refusedByUpstream(_ id: UploadID, status: Int) {
        logger.notice(
            "upload refused by upstream",
            metadata: ["upload": "\(id)", "status": "\(status)"]
        )
    }

    /// The upstream did not take the upload, and the bytes stay.
    ///
    /// - Parameters:
    ///   - id: the upload.
    ///   - reason: why.
    ///   - next: when the queue tries again; nil: it waits for its client.
    package func deferred(_ id: UploadID, reason: String, next: WallTime?) {
        logger.warning(
            "delivery deferred",
            metadata: [
                "upload": "\(id)", "reason": "\(reason)",
                "next-attempt": "\(next?.description ?? "-")",
            ]
        )
    }

    /// The upload was accepted for the queue.
    package func accepted(_ id: UploadID, route: String, target: String, length: Int64) {
        logger.info(
            "upload accepted",
            metadata: [
                "upload": "\(id)", "route": "\(route)", "target": "\(shown(target))",
                "length": "\(length)",
            ]
        )
    }

    /// The upload cannot be delivered; it is held.
    package func failed(_ id: UploadID, reason: String) {
        logger.error("delivery failed", metadata: ["upload": "\(id)", "reason": "\(reason)"])
    }

    /// A failed upload was kept for as long as its route keeps one, and was removed with its content.
    package func failedExpired(_ summary: UploadSummary) {
        logger.notice(
            "failed upload removed",
            metadata: ["upload": "\(summary.id)", "reason": "\(summary.reason ?? "")"]
        )
    }

    /// No more uploads are accepted for a route, because too many of it have failed; `count` since the
    /// line before.
    package func holdFull(route: String, size: Int64, limit: Int64, count: Int) {
        let reason =
            "the queue hold is full of uploads that were not delivered; spoolgate requeue tries them "
            + "again, spoolgate purge --force --older-than 0s --queue hold removes them"
        logger.error(
            "uploads not accepted",
            metadata: [
                "route": "\(route)", "size": "\(size)", "limit": "\(limit)",
                "count": "\(count)", "reason": "\(reason)",
            ]
        )
    }

    /// The stored response was kept for as long as its route keeps one.
    package func responseExpired(_ id: UploadID) {
        logger.debug("response expired", metadata: ["upload": "\(id)"])
    }

    /// A file was handed over, its upstream did not say 2xx, and its time was over.
    package func handoverExpired(_ path: String, route: String) {
        logger.info("handed-over file removed", metadata: ["path": "\(path)", "route": "\(route)"])
    }

    /// The queue cannot do its work.
    package func queueTrouble(_ reason: String) {
        logger.error("queue in trouble", metadata: ["reason": "\(reason)"])
    }

    /// Targets of an upstream were not reached; another one took the request.
    package func upstreamSkipped(route: String, reason: String) {
        logger.warning("target skipped", metadata: ["route": "\(route)", "reason": "\(reason)"])
    }

    /// The upstream was sent the upload and gave no answer; it is held.
    package func indeterminate(_ id: UploadID, reason: String) {
        logger.error("outcome unknown", metadata: ["upload": "\(id)", "reason": "\(reason)"])
    }

    /// The client cancelled the upload.
    package func cancelled(_ id: UploadID) {
        logger.info("upload cancelled", metadata: ["upload": "\(id)"])
    }

    /// The upload was older than its route keeps one.
    package func expired(_ id: UploadID) {
        logger.info("upload expired", metadata: ["upload": "\(id)"])
    }

    /// The upload's last activity lay in a future that the clock has left; it is now the present.
    package func timeMended(_ summary: UploadSummary) {
        logger.info(
            "upload time mended",
            metadata: ["upload": "\(summary.id)", "was": "\(summary.lastActivity)"]
        )
    }

    /// The upload can never become whole and was removed.
    package func deactivated(_ id: UploadID, reason: String) {
        logger.warning("upload deactivated", metadata: ["upload": "\(id)", "reason": "\(reason)"])
    }

    // MARK: Single requests

    /// An upload without a resource was taken by the upstream: a status below 400.
    package func ordinaryDelivered(_ id: UploadID, route: String, length: Int64, status: Int) {
        logger.info(
            "ordinary upload delivered",
            metadata: [
                "upload": "\(id)", "route": "\(route)", "length": "\(length)",
                "status": "\(status)",
            ]
        )
    }

    /// An upload without a resource was answered by the upstream with a status of 400 or above.
    package func ordinaryRefused(
        _ id: UploadID,
        route: String,
        length: Int64,
        status: Int
    ) {
        logger.notice(
            "ordinary upload refused by upstream",
            metadata: [
                "upload": "\(id)", "route": "\(route)", "length": "\(length)",
                "status": "\(status)",
            ]
        )
    }

    /// An upload without a resource was not delivered; its bytes are gone and the client was told.
    package func ordinaryFailed(_ id: UploadID, route: String, reason: String) {
        logger.warning(
            "ordinary upload failed",
            metadata: ["upload": "\(id)", "route": "\(route)", "reason": "\(reason)"]
        )
    }

    /// An ordinary request did not get its answer from the upstream.
    package func passThroughFailed(route: String, target: String, reason: String) {
        logger.warning(
            "request failed",
            metadata: ["route": "\(route)", "target": "\(shown(target))", "reason": "\(reason)"]
        )
    }

    /// A request was refused.
    package func refused(_ refusal: Refusal, target: String?) {
        logger.debug(
            "request refused",
            metadata: [
                "status": "\(refusal.status.code)", "target": "\(target.map(shown) ?? "-")",
                "reason": "\(refusal.detail)",
            ]
        )
    }

    /// The connection of a request on an upload was broken off, because it could only be told to come
    /// back.
    package func brokenOff(_ refusal: Refusal, target: String) {
        logger.debug(
            "request broken off",
            metadata: ["target": "\(target)", "reason": "\(refusal.title)"]
        )
    }

    /// Requests were turned away by a bound, the last one this client's.
    package func turnedAway(bound: String, client: String, count: Int) {
        logger.warning(
            "requests turned away",
            metadata: ["bound": "\(bound)", "client": "\(client)", "count": "\(count)"]
        )
    }

    /// The spool failed under a request.
    package func spoolFailed(_ error: SpoolError, upload: UploadID?) {
        logger.error(
            "spool failed",
            metadata: [
                "upload": "\(upload.map(\.description) ?? "-")", "reason": "\(error.sentence)",
            ]
        )
    }

    // MARK: Who may upload

    /// A client whom the web server does not name began an upload where that is refused.
    package func anonymousRefused(route: String, target: String) {
        logger.info(
            "anonymous upload refused",
            metadata: ["route": "\(route)", "target": "\(shown(target))"]
        )
    }

    // MARK: The authorizer

    /// The authorizer did not let a request in.
    package func notAuthorized(route: String, target: String, status: Int) {
        logger.debug(
            "not authorized",
            metadata: ["route": "\(route)", "target": "\(shown(target))", "status": "\(status)"]
        )
    }

    /// The authorizer could not be asked.
    package func authorizationFailed(route: String, target: String, reason: String) {
        logger.warning(
            "authorization failed",
            metadata: ["route": "\(route)", "target": "\(shown(target))", "reason": "\(reason)"]
        )
    }

    /// The authorizer wants a field set that cannot be.
    package func fieldNotSet(route: String, field: String) {
        logger.warning("field not set", metadata: ["route": "\(route)", "field": "\(field)"])
    }

    // MARK: Before the delivery

    /// A whole upload was refused by the inspection or the authorizer.
    package func notTaken(_ id: UploadID, status: Int, reason: String) {
        logger.warning(
            "upload refused",
            metadata: ["upload": "\(id)", "status": "\(status)", "reason": "\(reason)"]
        )
    }

    // MARK: Events

    /// Events could not be written down.
    package func eventsLost(_ lost: Int, reason: String) {
        logger.error("events lost", metadata: ["lost": "\(lost)", "reason": "\(reason)"])
    }

    /// The webhook did not take an event, which is tried again.
    package func webhookFailed(reason: String) {
        logger.warning("webhook failed", metadata: ["reason": "\(reason)"])
    }

    /// The webhook did not take an event for too long.
    package func eventDropped(delivery: String, reason: String) {
        logger.error(
            "event dropped",
            metadata: ["delivery": "\(delivery)", "reason": "\(reason)"]
        )
    }

    // MARK: The front

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
