// All lines that the daemon can write, one function each. The keys are terms of the settings and man pages.

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

    /// Creates a log that writes its lines with `logger`.
    package init(_ logger: Logger, showsQueries: Bool = false) {
        self.logger = logger
        self.showsQueries = showsQueries
    }

    /// Writes a line, with `-` for each value that is nil.
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

    /// Returns a log whose lines contain the ID `correlation`; unchanged if `correlation` is nil.
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

    /// Logs the names of environment variables that set settings.
    package func settingsFromEnvironment(_ variables: [String]) {
        write(.notice, "settings read from environment") {
            ["variables": variables.joined(separator: ",")]
        }
    }

    /// Logs how many uploads recovery found and repaired when it read the whole spool.
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

    /// Logs that recovery moved an upload with an unreadable record to the directory `corrupt`, for an operator.
    package func setAside(_ id: UploadID, reason: String) {
        write(.error, "upload moved to corrupt/") { ["upload": id, "reason": reason] }
    }

    /// Logs that recovery could not read or repair an upload.
    ///
    /// If `id` is nil, several uploads may be affected.
    package func notRecovered(_ id: UploadID?, _ error: SpoolError) {
        write(.error, "upload recovery failed") { ["upload": id, "reason": error.sentence] }
    }

    /// Logs that new settings are in force, except those in `unchanged`, which need a restart.
    package func reloaded(unchanged: [String]) {
        write(.notice, "settings reloaded", isWarning: !unchanged.isEmpty) {
            unchanged.isEmpty ? [:] : ["need-restart": unchanged.joined(separator: ",")]
        }
    }

    /// Logs that new settings were not applied; the old ones stay in force.
    package func reloadRefused(reason: String) {
        write(.error, "settings reload failed") { ["reason": reason] }
    }

    /// Logs that a setting in the file no longer exists and is ignored.
    package func settingIgnored(reason: String) {
        write(.warning, "setting ignored") { ["reason": reason] }
    }

    /// Logs that the system clock is not trusted because it is `lead` seconds ahead of the time known to have passed.
    package func clockJumped(lead: Int64) {
        write(.warning, "system clock jumped") { ["ahead-seconds": lead] }
    }

    /// Logs that the system clock is trusted again.
    package func clockTrusted() { write(.notice, "system clock trusted again") }

    /// Logs that the file system of a shared spool no longer accepts this host's requests; the daemon ends at once.
    package func fenced(reason: String) {
        write(.critical, "node fenced") { ["reason": reason] }
    }

    /// Logs that the daemon received a signal to end and stops accepting requests.
    package func draining(signal: String) {
        write(.notice, "shutdown started") { ["signal": signal] }
    }

    /// Logs that the daemon ends; `left` requests did not end in time and were aborted.
    package func stopped(left: Int) {
        write(.notice, "daemon stopped") { ["aborted-requests": left] }
    }

    // MARK: Uploads

    func created(_ creation: UploadCreation) {
        write(.info, "upload created") {
            [
                "upload": creation.id, "route": creation.route,
                "method": creation.head.method.rawValue, "target": shown(creation.head.target),
            ]
        }
    }

    /// Logs that a request's content was received completely.
    package func received(_ id: UploadID, offset: Int64) {
        write(.info, "content received") { ["upload": id, "offset": offset] }
    }

    func written(_ id: UploadID, _ path: ContentPath, nginx: Int64, gateway: Int64) {
        write(.debug, "content written") {
            [
                "upload": id, "nginx-bytes": nginx, "gateway-bytes": gateway,
                "reason": path.reason,
            ]
        }
    }

    /// Logs that the content of a request ended early; the bytes received so far are kept.
    package func interrupted(_ id: UploadID, offset: Int64, reason: ContentError) {
        write(.info, "upload interrupted") { ["upload": id, "offset": offset, "reason": reason] }
    }

    func delivering(_ id: UploadID, length: Int64) {
        write(.info, "delivery started") { ["upload": id, "length": length] }
    }

    /// Logs the upstream's final response.
    ///
    /// A `status` below 400 accepts the upload; any other refuses it.
    func responded(_ upload: Upload, status: Int) {
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

    /// Logs that a delivery attempt failed and the upload is kept for another attempt.
    ///
    /// `next` is the time of the queue's next attempt, or nil if the upload waits for its client.
    package func deferred(_ id: UploadID, reason: String, next: WallTime?) {
        write(.warning, "delivery deferred") {
            [
                "upload": id, "reason": reason,
                "next-attempt": next?.description ?? "when the client continues",
            ]
        }
    }

    func accepted(_ id: UploadID, route: String, target: String, length: Int64) {
        write(.info, "upload accepted") {
            ["upload": id, "route": route, "target": shown(target), "length": length]
        }
    }

    /// Logs that an upload cannot be delivered and is kept in the queue `hold`.
    package func failed(_ id: UploadID, reason: String) {
        write(.error, "delivery failed") { ["upload": id, "reason": reason] }
    }

    /// Logs the removal of a failed upload after its lifetime.
    package func failedExpired(_ summary: UploadSummary) {
        write(.notice, "failed upload removed") {
            ["upload": summary.id, "reason": summary.reason ?? ""]
        }
    }

    /// Logs that a route has refused `count` uploads since the last such line because too many have failed.
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

    /// Logs the removal of a stored response after its lifetime.
    package func responseExpired(_ id: UploadID) {
        write(.debug, "response expired") { ["upload": id] }
    }

    /// Logs the removal of a handed-over file that the application did not accept with a 2xx response.
    package func handoverExpired(_ path: String, route: String) {
        write(.info, "handed-over file removed") { ["path": path, "route": route] }
    }

    /// Logs an error that stops or delays the delivery queue.
    package func queueFailed(_ reason: String) {
        write(.error, "delivery queue failed") { ["reason": reason] }
    }

    /// Logs that an upstream target was unreachable and another received the request.
    package func upstreamSkipped(route: String, reason: String) {
        write(.warning, "upstream target skipped") { ["route": route, "reason": reason] }
    }

    /// Logs that the upstream may have received an upload but sent no response; the queue `hold` keeps the upload.
    package func indeterminate(_ id: UploadID, reason: String) {
        write(.error, "delivery outcome unknown") { ["upload": id, "reason": reason] }
    }

    /// Logs that the client cancelled an upload.
    package func cancelled(_ id: UploadID) {
        write(.info, "upload cancelled") { ["upload": id] }
    }

    /// Logs the removal of an upload that was idle longer than its route allows.
    package func expired(_ id: UploadID) {
        write(.info, "upload expired") { ["upload": id] }
    }

    /// Logs that an upload's last activity was changed to the current time because it was in the future after the clock
    /// was set back.
    package func timeCorrected(_ summary: UploadSummary) {
        write(.info, "upload time corrected") {
            ["upload": summary.id, "previous-time": summary.lastActivity]
        }
    }

    /// Logs the removal of an incomplete upload that cannot become complete.
    package func deactivated(_ id: UploadID, reason: String) {
        write(.warning, "upload deactivated") { ["upload": id, "reason": reason] }
    }

    // MARK: Requests

    /// Logs that an ordinary upload failed.
    ///
    /// The upload has no record, so it was removed.
    func ordinaryFailed(_ creation: UploadCreation, reason: String) {
        write(.warning, "ordinary upload failed") {
            ["upload": creation.id, "route": creation.route, "reason": reason]
        }
    }

    /// Logs that the upstream did not respond to a request that was passed on.
    package func passThroughFailed(route: String, target: String, reason: String) {
        write(.warning, "request failed") {
            ["route": route, "target": shown(target), "reason": reason]
        }
    }

    /// Logs that the gateway refused a request.
    package func refused(_ refusal: Refusal, target: String?) {
        write(.debug, "request refused") {
            [
                "status": refusal.status.code, "target": target.map(shown),
                "reason": Self.clause(refusal.detail),
            ]
        }
    }

    /// Logs that a request was aborted without a response, because the refusal is temporary and the client may retry.
    package func requestAborted(_ refusal: Refusal, target: String) {
        write(.debug, "request aborted") { ["target": target, "reason": refusal.title] }
    }

    /// Logs that the limit `bound` rejected `count` requests; `client` sent the last one.
    package func rejected(bound: String, client: String, count: Int) {
        write(.warning, "requests rejected") {
            ["limit": bound, "client": client, "requests": count]
        }
    }

    /// Logs that `count` slow requests were ended for lack of threads since the last such line; `client` sent the last
    /// one.
    package func slowRelease(client: String, count: Int) {
        write(.warning, "slow requests interrupted") { ["client": client, "requests": count] }
    }

    /// Logs a spool error; `upload` is nil if the error does not concern a single upload.
    package func spoolFailed(_ error: SpoolError, upload: UploadID?) {
        write(.error, "spool error") { ["upload": upload, "reason": error.sentence] }
    }

    // MARK: Anonymous clients

    /// Logs that an upload was refused because its client did not log in.
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

    /// Logs that the authorizer was unreachable or gave no decision.
    package func authorizationFailed(route: String, target: String, reason: String) {
        write(.warning, "authorization failed") {
            ["route": route, "target": shown(target), "reason": reason]
        }
    }

    /// Logs that a field of the authorizer is ignored, because it must not be added to a request.
    package func fieldNotSet(route: String, field: String) {
        write(.warning, "authorizer field ignored") { ["route": route, "field": field] }
    }

    // MARK: Before the delivery

    /// Logs that the inspection or the authorizer refused a complete upload.
    package func notTaken(_ id: UploadID, status: Int, reason: String) {
        write(.warning, "upload refused") { ["upload": id, "status": status, "reason": reason] }
    }

    // MARK: Events

    /// Logs that `lost` events could not be written since the last such line.
    package func eventsLost(_ lost: Int, reason: String) {
        write(.error, "events lost") { ["events": lost, "reason": reason] }
    }

    /// Logs that the webhook did not accept an event; the event stays in the queue and is sent again.
    package func webhookFailed(reason: String) {
        write(.warning, "webhook failed") { ["reason": reason] }
    }

    /// Logs that an event was dropped because the webhook did not accept it within its lifetime.
    package func eventDropped(delivery: String, reason: String) {
        write(.error, "event dropped") { ["delivery": delivery, "reason": reason] }
    }
}
