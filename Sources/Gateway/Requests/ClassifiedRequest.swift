// Classification of a request by its protocol and the settings of its route.

import HTTPTypes
import SpoolgateDelivery
import SpoolgateSettings
import SpoolgateUploadProtocol

struct ClassifiedRequest {
    /// The method as received.
    let method: HTTPRequest.Method
    let request: UploadRequest
    let dialect: Dialect
    /// Whether no field of the request names a protocol; the protocol of the addressed upload then applies.
    let isUnmarked: Bool
    /// The interop version that the request names, if that version is unknown; otherwise nil.
    ///
    /// Such a request is served like one of the newest known version, but without 104 responses.
    let unknownVersion: Int?
    let correlation: String?

    /// Classifies a request, and sets the effective method and the correlation field in `head`.
    init(
        _ head: inout RequestHead,
        on route: Route,
        _ configuration: Deliveries.Configuration
    ) {
        method = head.method
        let resources = route.resources
        // A captured `head` would be copied at each use.
        let target = head.target
        func isOnResource() -> Bool { resources.match(target: target) != .none }
        var family = ProtocolFamily(of: head, isOnResource: isOnResource())
        // The gateway does not interpret these tus fields.
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
