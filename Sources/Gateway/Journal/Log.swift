// All lines that the daemon can write, one function each. The keys are the terms of the settings and man pages.

import HTTPTypes
package import Logging
package import SpoolgateExchange
package import SpoolgatePosix
package import SpoolgateSpool
import SpoolgateTextFormats
package import SpoolgateUploadProtocol

/// The daemon's log.
package struct Log: Sendable {
    package let logger: Logger

    /// Whether targets are written with their queries, which may contain credentials.
    private let showsQueries: Bool

    /// Writes through `logger`.
    package init(_ logger: Logger, showsQueries: Bool = false) {
        self.logger = logger
        self.showsQueries = showsQueries
    }

    /// Writes a line; nil becomes `-`.
    func write(
        _ level: Logger.Level,
        _ message: Logger.Message,
        isWarning: Bool = false,
        _ values: () -> [String: Any?] = { [:] }
    ) {
        logger.log(
            level: isWarning ? .warning : level,
            message,
            metadata: values().mapValues { "\($0 ?? "-")" }
        )
    }

    func shown(_ target: String) -> String {
        target.shownTarget(withQuery: showsQueries)
    }

    /// Returns the log with `correlation` in every line; unchanged for nil.
    func correlated(_ correlation: String?) -> Log {
        guard let correlation else { return self }
        var logger = logger
        logger[metadataKey: "correlation"] = "\(correlation)"
        return Log(logger, showsQueries: showsQueries)
    }

    /// Returns a refusal's text without its full stop, as a reason.
    static func clause(_ text: String) -> String {
        text.hasSuffix(".") ? String(text.dropLast()) : text
    }

    // MARK: The daemon

    /// Logs that the daemon accepts requests.
    package func serving(listen: String, spool: String, routes: [String]) {
        write(.notice, "daemon started") {
            ["listen": listen, "spool": spool, "routes": routes.joined(separator: ",")]
        }
    }

    /// Logs environment variables that contained settings.
    package func settingsFromEnvironment(_ variables: [String]) {
        write(.notice, "settings read from environment") {
            ["variables": variables.joined(separator: ",")]
        }
    }

    /// Logs the result of a walk through the spool.
    package func recovered(_ recovery: Recovery) {
        write(.notice, "spool recovered") {
            [
                "uploads": recovery.uploads,
                "interrupted": recovery.interrupted, "orphans": recovery.orphans,
                "forgotten": recovery.forgotten, "corrupt": recovery.corrupt,
                "failed": recovery.failed,
            ]
        }
    }

    /// Logs that recovery moved an upload to `corrupt`.
    package func setAside(_ id: UploadID, reason: String) {
        write(.error, "upload moved to corrupt/") { ["upload": id, "reason": reason] }
    }

    /// Logs that recovery could not read or repair an upload, or several if `id` is nil.
    package func notRecovered(_ id: UploadID?, _ error: SpoolError) {
        write(.error, "upload recovery failed") { ["upload": id, "reason": error.sentence] }
    }

    /// Logs that new settings are in force; `unchanged` names those that need a restart.
    package func reloaded(unchanged: [String]) {
        write(.notice, "settings reloaded", isWarning: !unchanged.isEmpty) {
            unchanged.isEmpty ? [:] : ["need-restart": unchanged.joined(separator: ",")]
        }
    }

    /// Logs that new settings were refused.
    package func reloadRefused(reason: String) {
        write(.error, "settings reload failed") { ["reason": reason] }
    }

    /// Logs a line of the settings file with a setting that no longer exists.
    package func settingIgnored(reason: String) {
        write(.warning, "setting ignored") { ["reason": reason] }
    }

    /// Logs that the system clock is `lead` seconds ahead of the time that is known to have passed.
    package func clockDoubted(lead: Int64) {
        write(.warning, "system clock jumped") { ["ahead-seconds": lead] }
    }

    /// Logs that the system clock is trusted again.
    package func clockBelieved() { write(.notice, "system clock trusted again") }

    /// Logs that the file system of a shared spool has shut out this host; the daemon ends.
    package func fenced(reason: String) {
        write(.critical, "node fenced") { ["reason": reason] }
    }

    /// Logs that the daemon stops accepting requests.
    package func draining(signal: String) {
        write(.notice, "shutdown started") { ["signal": signal] }
    }

    /// Logs that the daemon ends; `left` requests did not end in time and were aborted.
    package func stopped(left: Int) {
        write(.notice, "daemon stopped") { ["aborted-requests": left] }
    }

    // MARK: Uploads

    /// Logs the creation of an upload.
    func created(_ creation: UploadCreation) {
        write(.info, "upload created") {
            [
                "upload": creation.id, "route": creation.route,
                "method": creation.head.method.rawValue, "target": shown(creation.head.target),
            ]
        }
    }

    /// Logs that content was received to its proper end.
    package func received(_ id: UploadID, offset: Int64) {
        write(.info, "content received") { ["upload": id, "offset": offset] }
    }

    /// Logs who wrote how much content, after its proper or early end.
    func written(_ id: UploadID, _ path: ContentPath, nginx: Int64, gateway: Int64) {
        write(.debug, "content written") {
            [
                "upload": id, "nginx-bytes": nginx, "gateway-bytes": gateway,
                "reason": path.reason,
            ]
        }
    }

    /// Logs that content ended early; the received bytes are kept.
    package func interrupted(_ id: UploadID, offset: Int64, reason: ContentError) {
        write(.info, "upload interrupted") { ["upload": id, "offset": offset, "reason": reason] }
    }

    /// Logs the start of a delivery attempt.
    func delivering(_ id: UploadID, length: Int64) {
        write(.info, "delivery started") { ["upload": id, "length": length] }
    }

    /// Logs the upstream's final response; a status below 400 accepts the upload.
    func answered(_ upload: Upload, status: Int) {
        let (id, route, length) = (upload.creation.id, upload.creation.route, upload.offset)
        switch (upload.isRecorded, status < 400) {
        case (true, true): write(.info, "upload delivered") { ["upload": id, "status": status] }
        case (true, false):
            write(.notice, "upload refused by upstream", isWarning: status >= 500) {
                ["upload": id, "status": status]
            }
        case (false, true):
            write(.info, "ordinary upload delivered") {
                ["upload": id, "route": route, "length": length, "status": status]
            }
        case (false, false):
            write(.notice, "ordinary upload refused by upstream", isWarning: status >= 500) {
                ["upload": id, "route": route, "length": length, "status": status]
            }
        }
    }

    /// Logs that the upstream did not accept the upload; the bytes are kept.
    ///
    /// - Parameters:
    ///   - id: the upload.
    ///   - reason: why the attempt failed.
    ///   - next: the time of the queue's next attempt, or nil if the upload waits for its client.
    package func deferred(_ id: UploadID, reason: String, next: WallTime?) {
        write(.warning, "delivery deferred") {
            ["upload": id, "reason": reason, "next-attempt": next]
        }
    }

    /// Logs that the upload was accepted for the queue.
    func accepted(_ id: UploadID, route: String, target: String, length: Int64) {
        write(.info, "upload accepted") {
            ["upload": id, "route": route, "target": shown(target), "length": length]
        }
    }

    /// Logs that the upload cannot be delivered and is on hold.
    package func failed(_ id: UploadID, reason: String) {
        write(.error, "delivery failed") { ["upload": id, "reason": reason] }
    }

    /// Logs the removal of an expired failed upload.
    package func failedExpired(_ summary: UploadSummary) {
        write(.notice, "failed upload removed") {
            ["upload": summary.id, "reason": summary.reason ?? ""]
        }
    }

    /// Logs that a route refuses uploads because too many have failed; `count` were refused since the last such line.
    package func holdFull(route: String, size: Int64, limit: Int64, count: Int) {
        let reason =
            "the uploads in hold have reached queue.maximum-hold-size; to retry them, run spoolgate requeue; "
            + "to remove them, run spoolgate purge --force --older-than 0s --queue hold"
        write(.error, "hold queue full") {
            [
                "route": route, "held-bytes": size, "limit-bytes": limit, "requests": count,
                "reason": reason,
            ]
        }
    }

    /// Logs the removal of an expired response.
    package func responseExpired(_ id: UploadID) {
        write(.debug, "response expired") { ["upload": id] }
    }

    /// Logs the removal of a file that was handed over without a 2xx response.
    package func handoverExpired(_ path: String, route: String) {
        write(.info, "handed-over file removed") { ["path": path, "route": route] }
    }

    /// Logs a failure of the delivery queue.
    package func queueTrouble(_ reason: String) {
        write(.error, "delivery queue failed") { ["reason": reason] }
    }

    /// Logs that a target was unreachable and another one received the request.
    package func upstreamSkipped(route: String, reason: String) {
        write(.warning, "upstream target skipped") { ["route": route, "reason": reason] }
    }

    /// Logs that the upstream sent no response to the upload, which is on hold.
    package func indeterminate(_ id: UploadID, reason: String) {
        write(.error, "delivery outcome unknown") { ["upload": id, "reason": reason] }
    }

    /// Logs a cancellation by the client.
    package func cancelled(_ id: UploadID) {
        write(.info, "upload cancelled") { ["upload": id] }
    }

    /// Logs that an upload has expired.
    package func expired(_ id: UploadID) {
        write(.info, "upload expired") { ["upload": id] }
    }

    /// Logs that the upload's last activity was in the future, after the clock was set back, and was reset to now.
    package func timeCorrected(_ summary: UploadSummary) {
        write(.info, "upload time corrected") {
            ["upload": summary.id, "previous-time": summary.lastActivity]
        }
    }

    /// Logs the removal of an upload that can never become complete.
    package func deactivated(_ id: UploadID, reason: String) {
        write(.warning, "upload deactivated") { ["upload": id, "reason": reason] }
    }

    // MARK: Requests

    /// Logs that an upload without a record was not delivered and was removed.
    func ordinaryFailed(_ creation: UploadCreation, reason: String) {
        write(.warning, "ordinary upload failed") {
            ["upload": creation.id, "route": creation.route, "reason": reason]
        }
    }

    /// Logs that the upstream did not respond to an ordinary request.
    package func passThroughFailed(route: String, target: String, reason: String) {
        write(.warning, "request failed") {
            ["route": route, "target": shown(target), "reason": reason]
        }
    }

    /// Logs the refusal of a request.
    package func refused(_ refusal: Refusal, target: String?) {
        write(.debug, "request refused") {
            [
                "status": refusal.status.code, "target": target.map(shown),
                "reason": Self.clause(refusal.detail),
            ]
        }
    }

    /// Logs a connection that was closed because the refusal only meant "later".
    package func brokenOff(_ refusal: Refusal, target: String) {
        write(.debug, "request aborted") { ["target": target, "reason": refusal.title] }
    }

    /// Logs that `count` requests were rejected because of the limit `bound`; `client` sent the last one.
    package func turnedAway(bound: String, client: String, count: Int) {
        write(.warning, "requests rejected") {
            ["limit": bound, "client": client, "requests": count]
        }
    }

    /// Logs slow requests that were ended because few threads were free; `client` sent the last one.
    package func slowLetGo(client: String, count: Int) {
        write(.warning, "slow requests interrupted") { ["client": client, "requests": count] }
    }

    /// Logs a failure of the spool.
    package func spoolFailed(_ error: SpoolError, upload: UploadID?) {
        write(.error, "spool error") { ["upload": upload, "reason": error.sentence] }
    }

    // MARK: Anonymous clients

    /// Logs the refusal of an anonymous client.
    package func anonymousRefused(route: String, target: String) {
        write(.info, "anonymous upload refused") { ["route": route, "target": shown(target)] }
    }

    // MARK: The authorizer

    /// Logs that the authorizer refused a request.
    package func notAuthorized(route: String, target: String, status: Int) {
        write(.debug, "upload not authorized") {
            ["route": route, "target": shown(target), "status": status]
        }
    }

    /// Logs that the authorizer could not be reached.
    package func authorizationFailed(route: String, target: String, reason: String) {
        write(.warning, "authorization failed") {
            ["route": route, "target": shown(target), "reason": reason]
        }
    }

    /// Logs that the authorizer named a field that cannot be set.
    package func fieldNotSet(route: String, field: String) {
        write(.warning, "authorizer field ignored") { ["route": route, "field": field] }
    }

    // MARK: Before the delivery

    /// Logs that the inspection or the authorizer refused a complete upload.
    package func notTaken(_ id: UploadID, status: Int, reason: String) {
        write(.warning, "upload refused") { ["upload": id, "status": status, "reason": reason] }
    }

    // MARK: Events

    /// Logs that events could not be written.
    package func eventsLost(_ lost: Int, reason: String) {
        write(.error, "events lost") { ["events": lost, "reason": reason] }
    }

    /// Logs that the webhook did not accept an event, which will be sent again.
    package func webhookFailed(reason: String) {
        write(.warning, "webhook failed") { ["reason": reason] }
    }

    /// Logs an event that was dropped at the end of its lifetime.
    package func eventDropped(delivery: String, reason: String) {
        write(.error, "event dropped") { ["delivery": delivery, "reason": reason] }
    }
}
