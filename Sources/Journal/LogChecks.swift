// The lines of what stands beside a delivery: authorizer, inspection, events. The others are in Log.

import Logging
package import UploadProtocol

extension Log {
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
}
