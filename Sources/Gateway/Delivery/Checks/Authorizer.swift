// The service that authorizes the creation of an upload, and its delivery.
//
// Invariant: an invalid response authorizes nothing.

package import HTTPTypes
import SpoolgatePosix
import SpoolgateSettings
package import SpoolgateSpool
package import SpoolgateTextFormats
package import SpoolgateUploadProtocol
package import SpoolgateUpstream

/// The permissions that an authorizer grants to an upload.
package struct Grant: Equatable {
    /// The client's identity according to the authorizer; nil if the authorizer named none.
    package var owner: ExactText?
    package var maxSize: Int64?
    /// Fields to set in the request to the upstream.
    ///
    /// An empty value removes the field from the request.
    package var fields = HTTPFields()
    /// The names of fields that the authorizer may not set, which are ignored.
    package var refusedNames: [String] = []

    /// Creates a grant that names no owner, sets no limit and sets no fields.
    package init() {}
}

/// The result of an authorization.
package enum AuthorizationDecision {
    case granted(Grant)
    /// The value is the response to the client.
    case refused(Response)
    /// The authorizer did not respond, or its response is invalid.
    case unavailable(reason: String)

    fileprivate var word: String {
        switch self {
        case .granted: "granted"
        case .refused: "refused"
        case .unavailable: "unavailable"
        }
    }
}

extension Response {
    /// The refusal in place of an authorizer's redirect; nil for every other response.
    ///
    /// The redirect leads to a login, and a client would take the login page for the response to its upload.
    package var loginRefusal: Refusal? {
        (300..<400).contains(head.status.code) ? .credentialsRefused([], isKept: false) : nil
    }
}

/// The authorizer of one route.
///
/// Thread-safe. Keeps its connections open and reuses them.
package final class Authorizer: Sendable {
    let settings: ServiceSettings
    private let url: ServiceURL
    private let upstream: Upstream
    private let times: Histograms<String>
    /// The gateway's name in `Via`, which identifies its own request in a loop.
    private let gateway: GatewayName
    /// The maximum content of a response for the client, in bytes.
    static let responseCap = 64 << 10

    /// The points in an upload's life that need authorization.
    package enum Moment: String {
        /// Before any content is read.
        case creation
        /// Before the complete upload is sent to the upstream.
        case delivery
    }

    /// Returns nil if the settings name no service.
    ///
    /// Records the duration of requests in `times`.
    init?(_ settings: ServiceSettings, _ times: Histograms<String>, by gateway: GatewayName) {
        guard let url = settings.url, let upstream = settings.upstream else { return nil }
        self.settings = settings
        self.url = url
        self.upstream = Upstream(upstream)
        self.times = times
        self.gateway = gateway
    }

    /// Asks the service whether the upload is authorized.
    ///
    /// Blocks until the service responds or the timeouts expire. At the creation, the request does not contain the
    /// upload's ID. `length` is the size in bytes; nil if unknown. `completing` contains the fields of the request that
    /// completed the upload. `policy` decides only which credentials are sent. `meanwhile` is called at least once a
    /// second after the connection is open.
    package func authorize(
        at moment: Moment,
        about creation: UploadCreation,
        length: Int64?,
        completing: HTTPFields? = nil,
        policy: FieldPolicy = FieldPolicy(),
        meanwhile: @escaping () -> Void = {}
    ) -> AuthorizationDecision {
        let watch = Stopwatch()
        var fields = self.fields(of: creation, completing: completing, policy)
        fields[.spoolgateEvent] = moment.rawValue
        fields[.spoolgateUpload] = moment == .creation ? nil : "\(creation.id)"
        fields[.uploadLength] = length.map { "\($0)" }
        let sink = WholeResponse(
            cap: Self.responseCap,
            timeout: settings.timeout,
            meanwhile: meanwhile
        )
        let outcome = upstream.attempt(
            UpstreamRequest(
                method: .get,
                target: url.requestTarget,
                fields: fields,
                content: .none
            ),
            sink: sink
        )
        let decision = decision(outcome, sink)
        times[decision.word].add(nanoseconds: watch.nanoseconds)
        return decision
    }

    private func decision(_ outcome: AttemptOutcome, _ sink: WholeResponse) -> AuthorizationDecision
    {
        if let reason = outcome.reason { return .unavailable(reason: reason) }
        guard let head = sink.head, let response = sink.response else {
            return .unavailable(reason: "\(url.text) sent no response")
        }
        guard (200..<300).contains(head.status.code) else { return .refused(response) }
        guard let grant = Grant(head.fields) else {
            return .unavailable(
                reason:
                    "\(url.text) sent a Spoolgate-Max-Size that is not a positive number, or a Spoolgate-Owner "
                    + "that is not UTF-8 text"
            )
        }
        return .granted(grant)
    }

    /// The client's fields without those for content, framing and conditions, plus the client's identity.
    private func fields(
        of creation: UploadCreation,
        completing: HTTPFields?,
        _ routes: FieldPolicy
    ) -> HTTPFields {
        var policy = FieldPolicy()
        policy.credentials = routes.credentials
        policy.credentialFields = routes.credentialFields
        policy.forwarding = routes.forwarding
        var fields = UpstreamFields.delivered(
            creation.head.fields,
            granted: creation.head.granted,
            completing: completing,
            policy: policy
        )
        // The authorizer checks the client's credentials; it receives its own only if the client has none.
        let granted = creation.head.granted
        let own = policy.credentialsForAuthorizer(in: completing ?? [:], granted)
        let isWithOther = fields.contains {
            policy.credentialFields.contains($0.name) && !granted.contains($0.name)
        }
        if !own.isEmpty || isWithOther {
            fields.removeAll { policy.isGrantedCredential($0.name, granted) }
            fields.append(contentsOf: own)
        }
        let host = fields[.host]
        fields.removeAll { Self.leftOut($0.name.canonicalName) }
        fields.addForwarding(
            .xForwarded,
            address: creation.remoteAddress,
            scheme: creation.scheme,
            host: host,
            by: gateway
        )
        fields[.xForwardedMethod] = creation.head.method.rawValue
        fields[.xForwardedUri] = creation.head.target
        fields[.spoolgateOwner] = creation.principal?.text
        return fields
    }

    /// Whether the request to the authorizer omits this field of the client.
    ///
    /// `Host` names the authorizer. Conditions and ranges apply to the upload's target. Only the gateway sets
    /// `Spoolgate-` fields.
    private static func leftOut(_ name: String) -> Bool {
        name == "host" || name == "range" || name.hasPrefix("if-") || name.hasPrefix("spoolgate-")
            || ["x-forwarded-method", "x-forwarded-uri", "x-forwarded-host"].contains(name)
    }
}

extension Grant {
    private static let setPrefix = "spoolgate-set-"

    /// Reads the fields of a response that authorizes an upload.
    ///
    /// Returns nil if a field is invalid.
    package init?(_ fields: HTTPFields) {
        // Replacing invalid bytes could make two owners equal.
        for field in fields where field.name == .spoolgateOwner {
            let isText = field.withUnsafeBytesOfValue {
                String(validating: $0, as: UTF8.self) != nil
            }
            guard isText else { return nil }
        }
        if let owner = fields[.spoolgateOwner], !owner.isEmpty { self.owner = ExactText(owner) }
        if let text = fields[.spoolgateMaxSize] {
            guard let size = Int64(text), size > 0 else { return nil }
            maxSize = min(size, UploadLimits.maximumSize)
        }
        for field in fields where field.name.canonicalName.hasPrefix(Self.setPrefix) {
            let name = String(field.name.rawName.dropFirst(Self.setPrefix.count))
            guard let name = Self.settable(name) else {
                refusedNames.append(name)
                continue
            }
            self.fields.append(HTTPField(name: name, value: field.value))
        }
    }

    /// Returns the field's name; nil if the authorizer may not set the field.
    private static func settable(_ text: String) -> HTTPField.Name? {
        FieldPolicy.name(text).flatMap { $0.folded.hasPrefix("spoolgate-") ? nil : $0 }
    }

    /// Replaces the client's fields that have the names of the grant's fields.
    ///
    /// An empty value removes a field.
    package func apply(to head: inout RequestHead) {
        guard !fields.isEmpty else { return }
        let names = Set(fields.map(\.name.folded))
        head.fields.removeAll { names.contains($0.name.folded) }
        head.fields.append(contentsOf: fields.filter { !$0.value.isEmpty })
        for field in fields where !head.granted.contains(field.name) {
            head.granted.append(field.name)
        }
    }

    /// Ignores the grant's fields of this name, which only the gateway sets.
    package mutating func refuse(_ name: HTTPField.Name) {
        guard fields.contains(name) else { return }
        fields[fields: name] = []
        refusedNames.append(name.rawName)
    }
}

extension HTTPField.Name {
    static let xForwardedMethod = made("x-forwarded-method")
    static let xForwardedUri = made("x-forwarded-uri")
    static let spoolgateEvent = made("spoolgate-event")
    static let spoolgateOwner = made("spoolgate-owner")
    static let spoolgateUpload = made("spoolgate-upload")
    static let spoolgateMaxSize = made("spoolgate-max-size")
}
