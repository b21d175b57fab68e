// Every line the daemon can write, one function each. Keys are the words of the settings and pages.

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

    /// Whether targets are written with their queries, which may hold what proves who somebody is.
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
        write(.notice, "daemon started") {
            ["listen": listen, "spool": spool, "routes": routes.joined(separator: ",")]
        }
    }

    /// Variables of the environment, by name, have given settings.
    package func settingsFromEnvironment(_ variables: [String]) {
        write(.notice, "settings read from environment") {
            ["variables": variables.joined(separator: ",")]
        }
    }

    /// What a walk through the spool found and did.
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

    /// Recovery moved an upload to `corrupt`.
    package func setAside(_ id: UploadID, reason: String) {
        write(.error, "upload moved to corrupt/") { ["upload": id, "reason": reason] }
    }

    /// Recovery could not look at an upload, or at several, or not mend it.
    package func notRecovered(_ id: UploadID?, _ error: SpoolError) {
        write(.error, "upload recovery failed") { ["upload": id, "reason": error.sentence] }
    }

    /// New settings are in force; `unchanged` names those that need a restart.
    package func reloaded(unchanged: [String]) {
        write(.notice, "settings reloaded", isWarning: !unchanged.isEmpty) {
            unchanged.isEmpty ? [:] : ["need-restart": unchanged.joined(separator: ",")]
        }
    }

    /// New settings were refused; the old ones stay.
    package func reloadRefused(reason: String) {
        write(.error, "settings reload failed") { ["reason": reason] }
    }

    /// The settings file has a line without effect: a setting that was removed.
    package func settingIgnored(reason: String) {
        write(.warning, "setting ignored") { ["reason": reason] }
    }

    /// The time of day is `lead` seconds ahead of the time that is known to have passed.
    package func clockDoubted(lead: Int64) {
        write(.warning, "system clock jumped") { ["lead": lead] }
    }

    /// The time of day is believed again.
    package func clockBelieved() { write(.notice, "system clock trusted again") }

    /// The file system of a shared spool has shut this host out: the daemon ends at once.
    package func fenced(reason: String) {
        write(.critical, "node fenced") { ["reason": reason] }
    }

    /// The daemon stops taking requests.
    package func draining(signal: String) {
        write(.notice, "shutdown started") { ["signal": signal] }
    }

    /// The daemon ends; `left` exchanges did not end in time.
    package func stopped(left: Int) {
        write(.notice, "daemon stopped") { ["left": left] }
    }

    // MARK: An upload's life

    /// An upload resource was created.
    func created(_ creation: UploadCreation) {
        write(.info, "upload created") {
            [
                "upload": creation.id, "route": creation.route,
                "method": creation.head.method.rawValue, "target": shown(creation.head.target),
            ]
        }
    }

    /// Content of one request was received to its proper end.
    package func received(_ id: UploadID, offset: Int64) {
        write(.info, "content received") { ["upload": id, "offset": offset] }
    }

    /// The content of one request is over, at its end or before: who has written it, and how much.
    func written(_ id: UploadID, _ path: ContentPath, nginx: Int64, gateway: Int64) {
        write(.debug, "content written") {
            ["upload": id, "nginx": nginx, "gateway": gateway, "reason": path.reason]
        }
    }

    /// Content ended early; what arrived is kept.
    package func interrupted(_ id: UploadID, offset: Int64, reason: ContentError) {
        write(.info, "upload interrupted") { ["upload": id, "offset": offset, "reason": reason] }
    }

    /// A delivery attempt begins.
    func delivering(_ id: UploadID, length: Int64) {
        write(.info, "delivery started") { ["upload": id, "length": length] }
    }

    /// The upstream has answered an upload, and the client gets that answer: a status below 400 takes it.
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

    /// The upstream did not take the upload, and the bytes stay.
    ///
    /// - Parameters:
    ///   - id: the upload.
    ///   - reason: why.
    ///   - next: when the queue tries again; nil: it waits for its client.
    package func deferred(_ id: UploadID, reason: String, next: WallTime?) {
        write(.warning, "delivery deferred") {
            ["upload": id, "reason": reason, "next-attempt": next]
        }
    }

    /// The upload was accepted for the queue.
    func accepted(_ id: UploadID, route: String, target: String, length: Int64) {
        write(.info, "upload accepted") {
            ["upload": id, "route": route, "target": shown(target), "length": length]
        }
    }

    /// The upload cannot be delivered; it is held.
    package func failed(_ id: UploadID, reason: String) {
        write(.error, "delivery failed") { ["upload": id, "reason": reason] }
    }

    /// A failed upload was kept for as long as its route keeps one, and was removed with its content.
    package func failedExpired(_ summary: UploadSummary) {
        write(.notice, "failed upload removed") {
            ["upload": summary.id, "reason": summary.reason ?? ""]
        }
    }

    /// No more uploads are accepted for a route, because too many of it have failed; `count` since the
    /// line before.
    package func holdFull(route: String, size: Int64, limit: Int64, count: Int) {
        let reason =
            "the queue hold has reached queue.maximum-hold-size; to retry its uploads, run spoolgate requeue; "
            + "to remove them, run spoolgate purge --force --older-than 0s --queue hold"
        write(.error, "hold queue full") {
            ["route": route, "size": size, "limit": limit, "count": count, "reason": reason]
        }
    }

    /// The stored response was kept for as long as its route keeps one.
    package func responseExpired(_ id: UploadID) {
        write(.debug, "response expired") { ["upload": id] }
    }

    /// A file was handed over, its upstream did not say 2xx, and its time was over.
    package func handoverExpired(_ path: String, route: String) {
        write(.info, "handed-over file removed") { ["path": path, "route": route] }
    }

    /// The queue cannot do its work.
    package func queueTrouble(_ reason: String) {
        write(.error, "delivery queue failed") { ["reason": reason] }
    }

    /// Targets of an upstream were not reached; another one took the request.
    package func upstreamSkipped(route: String, reason: String) {
        write(.warning, "upstream target skipped") { ["route": route, "reason": reason] }
    }

    /// The upstream was sent the upload and gave no answer; it is held.
    package func indeterminate(_ id: UploadID, reason: String) {
        write(.error, "outcome unknown") { ["upload": id, "reason": reason] }
    }

    /// The client cancelled the upload.
    package func cancelled(_ id: UploadID) {
        write(.info, "upload cancelled") { ["upload": id] }
    }

    /// The upload was older than its route keeps one.
    package func expired(_ id: UploadID) {
        write(.info, "upload expired") { ["upload": id] }
    }

    /// The upload's last activity lay in a future that the clock has left; it is now the present.
    package func timeMended(_ summary: UploadSummary) {
        write(.info, "upload time corrected") {
            ["upload": summary.id, "was": summary.lastActivity]
        }
    }

    /// The upload can never become whole and was removed.
    package func deactivated(_ id: UploadID, reason: String) {
        write(.warning, "upload deactivated") { ["upload": id, "reason": reason] }
    }

    // MARK: Single requests

    /// An upload without a record was not delivered; its bytes are gone and the client was told.
    func ordinaryFailed(_ creation: UploadCreation, reason: String) {
        write(.warning, "ordinary upload failed") {
            ["upload": creation.id, "route": creation.route, "reason": reason]
        }
    }

    /// An ordinary request did not get its answer from the upstream.
    package func passThroughFailed(route: String, target: String, reason: String) {
        write(.warning, "request failed") {
            ["route": route, "target": shown(target), "reason": reason]
        }
    }

    /// A request was refused.
    package func refused(_ refusal: Refusal, target: String?) {
        write(.debug, "request refused") {
            ["status": refusal.status.code, "target": target.map(shown), "reason": refusal.detail]
        }
    }

    /// The connection of a request on an upload was broken off, because it could only be told to come
    /// back.
    package func brokenOff(_ refusal: Refusal, target: String) {
        write(.debug, "request aborted") { ["target": target, "reason": refusal.title] }
    }

    /// Requests were turned away by a bound, the last one this client's.
    package func turnedAway(bound: String, client: String, count: Int) {
        write(.warning, "requests rejected") {
            ["bound": bound, "client": client, "count": count]
        }
    }

    /// Threads ran short, and slow requests were asked to let go, the last one this client's.
    package func slowLetGo(client: String, count: Int) {
        write(.warning, "slow requests interrupted") { ["client": client, "count": count] }
    }

    /// The spool failed under a request.
    package func spoolFailed(_ error: SpoolError, upload: UploadID?) {
        write(.error, "spool failed") { ["upload": upload, "reason": error.sentence] }
    }

    // MARK: Who may upload

    /// A client whom the web server does not name began an upload where that is refused.
    package func anonymousRefused(route: String, target: String) {
        write(.info, "anonymous upload refused") { ["route": route, "target": shown(target)] }
    }

    // MARK: The authorizer

    /// The authorizer did not let a request in.
    package func notAuthorized(route: String, target: String, status: Int) {
        write(.debug, "upload not authorized") {
            ["route": route, "target": shown(target), "status": status]
        }
    }

    /// The authorizer could not be asked.
    package func authorizationFailed(route: String, target: String, reason: String) {
        write(.warning, "authorization failed") {
            ["route": route, "target": shown(target), "reason": reason]
        }
    }

    /// The authorizer wants a field set that cannot be.
    package func fieldNotSet(route: String, field: String) {
        write(.warning, "authorizer field ignored") { ["route": route, "field": field] }
    }

    // MARK: Before the delivery

    /// A whole upload was refused by the inspection or the authorizer.
    package func notTaken(_ id: UploadID, status: Int, reason: String) {
        write(.warning, "upload refused") { ["upload": id, "status": status, "reason": reason] }
    }

    // MARK: Events

    /// Events could not be written down.
    package func eventsLost(_ lost: Int, reason: String) {
        write(.error, "events lost") { ["lost": lost, "reason": reason] }
    }

    /// The webhook did not take an event, which is tried again.
    package func webhookFailed(reason: String) {
        write(.warning, "webhook failed") { ["reason": reason] }
    }

    /// The webhook did not take an event for too long.
    package func eventDropped(delivery: String, reason: String) {
        write(.error, "event dropped") { ["delivery": delivery, "reason": reason] }
    }
}
