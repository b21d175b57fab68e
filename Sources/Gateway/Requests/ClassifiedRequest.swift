// What a request is, by its protocol and the settings of its route.

import HTTPTypes
import SpoolgateDelivery
import SpoolgateSettings
import SpoolgateUploadProtocol

/// A request, classified.
struct ClassifiedRequest {
    /// What it asks for.
    let request: UploadRequest
    /// The dialect in which it is answered.
    let dialect: Dialect
    /// Whether nothing in it tells a protocol: then it speaks that of the upload it is on.
    let isUnmarked: Bool
    /// The interop version that it names and that is served as the newest one, without a 104; nil: there is none.
    let unknownVersion: Int?
    /// What correlates its log lines; nil where nothing does.
    let correlation: String?

    /// Classifies a request by its head, which gets the method that it means and a field that correlates it.
    init(
        _ head: inout RequestHead,
        on route: Route,
        _ configuration: Deliveries.Configuration
    ) {
        let resources = route.resources
        // Not of the head, which every use would be a copy of then.
        let target = head.target
        func isOnResource() -> Bool { resources.match(target: target) != .none }
        var family = ProtocolFamily(of: head, isOnResource: isOnResource())
        // What it says is the upstream's to read, or nobody's.
        let isPassed = family == .tus && route.settings.tus == .pass && !isOnResource()
        if family == .tus, isPassed || route.settings.tus == .off { family = .ietf }
        head.method = UploadRequest.method(of: head, family)
        dialect =
            family == .tus
            ? Dialect.tus
            : Dialect(
                of: head.fields,
                aliases: configuration.settings.interopAliases,
                hasRFCClients: route.settings.hasRFCClients
            )
        unknownVersion = dialect.unknownVersion(in: head.fields)
        correlation = configuration.settings.correlationField.map { head.fields.correlate(by: $0) }
        let limits = route.settings.limits
        request =
            isPassed
            ? UploadRequest(passed: head, limits: limits)
            : UploadRequest(head, dialect: dialect, resources: resources, limits: limits)
        isUnmarked = family == nil
    }
}
