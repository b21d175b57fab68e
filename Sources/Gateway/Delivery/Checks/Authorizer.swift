// The service that is asked whether an upload may come in, and again whether it may be delivered.
//
// It asks and reads the answer; Gate.swift and DeliveryChecks.swift do what follows from it. Invariant: an answer that
// cannot be understood lets nothing in.

package import HTTPTypes
import SpoolgatePosix
import SpoolgateSettings
package import SpoolgateSpool
package import SpoolgateTextFormats
package import SpoolgateUploadProtocol
package import SpoolgateUpstream

/// What an authorizer lets an upload have.
package struct Grant: Equatable {
    /// Who the client is, as the authorizer says.
    package var owner: ExactText?
    /// Most bytes the upload may have.
    package var maxSize: Int64?
    /// Fields to set in the request to the upstream; one without a value is left out there.
    package var fields = HTTPFields()
    /// Names of fields that cannot be set.
    package var refusedNames: [String] = []

    /// Nothing beside the upload itself.
    package init() {}
}

/// An authorizer's answer.
package enum AuthorizationAnswer {
    /// Let it in.
    case granted(Grant)
    /// The client is to get this.
    case refused(Response)
    /// There is no answer, or none that can be understood.
    case unavailable(reason: String)

    /// Which of them it is.
    fileprivate var word: String {
        switch self {
        case .granted: "granted"
        case .refused: "refused"
        case .unavailable: "unavailable"
        }
    }
}

/// The authorizer of one route.
///
/// Any thread; connections are kept and reused.
package final class Authorizer: Sendable {
    /// The settings it was made with.
    let settings: ServiceSettings
    private let url: ServiceURL
    private let upstream: Upstream
    private let times: Histograms<String>
    /// How it knows a question that comes back to it.
    private let gateway: GatewayName
    /// Most content of an answer that a client gets.
    static let answerCap = 64 << 10

    /// The moments at which it is asked.
    package enum Moment: String {
        /// Before any content is read.
        case creation
        /// Before the upstream is sent the whole upload.
        case delivery
    }

    /// Makes an authorizer, asked by a gateway, which counts how long its answers took; nil where the settings name none.
    init?(_ settings: ServiceSettings, _ times: Histograms<String>, by gateway: GatewayName) {
        guard let url = settings.url, let upstream = settings.upstream else { return nil }
        self.settings = settings
        self.url = url
        self.upstream = Upstream(upstream)
        self.times = times
        self.gateway = gateway
    }

    /// Asks; blocks for up to the timeouts.
    ///
    /// - Parameters:
    ///   - moment: when; an upload that is still to be created is not named.
    ///   - creation: the upload, and the request that creates it.
    ///   - length: bytes of the upload, where known.
    ///   - completing: the fields of the request that completes the upload, where one does.
    ///   - policy: whose credentials go along; the rest of it is for the upstream.
    ///   - meanwhile: called at least once a second once there is a connection.
    /// - Returns: its answer.
    package func ask(
        at moment: Moment,
        about creation: UploadCreation,
        length: Int64?,
        completing: HTTPFields? = nil,
        policy: FieldPolicy = FieldPolicy(),
        meanwhile: @escaping () -> Void = {}
    ) -> AuthorizationAnswer {
        let watch = Stopwatch()
        var fields = self.fields(of: creation, completing: completing, policy)
        fields[.spoolgateEvent] = moment.rawValue
        fields[.spoolgateUpload] = moment == .creation ? nil : "\(creation.id)"
        fields[.uploadLength] = length.map { "\($0)" }
        let sink = WholeResponse(
            cap: Self.answerCap,
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
        let answer = answer(outcome, sink)
        times[answer.word].add(nanoseconds: watch.nanoseconds)
        return answer
    }

    private func answer(_ outcome: AttemptOutcome, _ sink: WholeResponse) -> AuthorizationAnswer {
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

    /// The client's fields, without what belongs to content, framing or conditions, and who it is.
    private func fields(
        of creation: UploadCreation,
        completing: HTTPFields?,
        _ routes: FieldPolicy
    ) -> HTTPFields {
        var policy = FieldPolicy()
        policy.credentials = routes.credentials
        policy.credentialFields = routes.credentialFields
        policy.trustsForwarded = routes.trustsForwarded
        var fields = UpstreamFields.delivered(
            creation.head.fields,
            completing: completing,
            policy: policy
        )
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

    /// `Host` names the authorizer; conditions and ranges are about the upload's target, and would
    /// change the answer; nobody but the gateway says `Spoolgate-`.
    private static func leftOut(_ name: String) -> Bool {
        name == "host" || name == "range" || name.hasPrefix("if-") || name.hasPrefix("spoolgate-")
            || ["x-forwarded-method", "x-forwarded-uri", "x-forwarded-host"].contains(name)
    }
}

extension Grant {
    private static let setPrefix = "spoolgate-set-"

    /// Reads the fields of an answer that lets an upload in; nil where they say what cannot be.
    package init?(_ fields: HTTPFields) {
        // Repaired bytes could make one owner of two.
        for field in fields where field.name == .spoolgateOwner {
            let isText = field.withUnsafeBytesOfValue {
                String(validating: $0, as: UTF8.self) != nil
            }
            guard isText else { return nil }
        }
        if let owner = fields[.spoolgateOwner], !owner.isEmpty { self.owner = ExactText(owner) }
        if let text = fields[.spoolgateMaxSize] {
            guard let size = Int64(text), size > 0 else { return nil }
            maxSize = min(size, UploadLimits.mostSize)
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

    /// The name of a field that can be set; nil for another.
    private static func settable(_ text: String) -> HTTPField.Name? {
        FieldPolicy.name(text).flatMap { $0.canonicalName.hasPrefix("spoolgate-") ? nil : $0 }
    }

    /// The fields of a request with those that are to be set in it, and the names of those that are credentials.
    package func applied(to fields: HTTPFields, _ policy: FieldPolicy) -> HTTPFields {
        var applied = fields
        for field in self.fields { applied[field.name] = nil }
        for field in self.fields where !field.value.isEmpty { applied.append(field) }
        let names = self.fields.map(\.name).filter { policy.credentialFields.contains($0) }
        applied[UpstreamFields.setNames] =
            names.isEmpty ? nil : names.map(\.rawName).joined(separator: ", ")
        return applied
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
