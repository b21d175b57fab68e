// The web server's parameters about a request.

package import SpoolgateTextFormats

/// The parameters that the web server passes with a request, as the operator has configured it.
package struct ExchangeContext: Sendable, Equatable {
    /// The route (`SPOOLGATE_ROUTE`); nil for the default route.
    package var route: String?
    /// The client's identity (`SPOOLGATE_OWNER`); nil if unknown.
    package var owner: ExactText?
    /// The public origin, such as `https://example.org:8443` (`SPOOLGATE_ORIGIN`); if nil, `Location` is only a path.
    package var origin: String?
    /// The value of `SPOOLGATE_ORIGIN` if it is not a valid origin; otherwise nil.
    package var badOrigin: String?
    /// The interim statuses that the web server forwards to clients (`SPOOLGATE_INTERIM`).
    package var interimStatuses: [Int]
    /// The client's address (`REMOTE_ADDR`); nil if missing.
    package var remoteAddress: String?
    /// The scheme of the client's request, such as `https` (`REQUEST_SCHEME`); nil if missing.
    package var scheme: String?
    /// The mistakes in the web server's configuration that the parameters reveal.
    ///
    /// If they include `.badOrigin`, the property `badOrigin` is the invalid value.
    package var faults: Set<FrontFault>

    /// Creates a context.
    package init(
        route: String? = nil,
        owner: ExactText? = nil,
        origin: String? = nil,
        badOrigin: String? = nil,
        interimStatuses: [Int] = [],
        remoteAddress: String? = nil,
        scheme: String? = nil,
        faults: Set<FrontFault> = []
    ) {
        self.route = route
        self.owner = owner
        self.origin = origin
        self.badOrigin = badOrigin
        self.interimStatuses = interimStatuses
        self.remoteAddress = remoteAddress
        self.scheme = scheme
        self.faults = faults
    }
}

/// A kind of mistake in the web server's configuration.
package enum FrontFault: String, Sendable, CaseIterable {
    /// The web server stored content in a file before passing the content on.
    case buffered
    /// nginx does not say whether it buffers content, because its configuration lacks spoolgate's parameter file.
    case bufferingUnknown = "buffering_unknown"
    case noOrigin = "no_origin"
    case badOrigin = "bad_origin"
    /// `REQUEST_METHOD`, `REQUEST_URI`, `SPOOLGATE_INTERIM` or the FastCGI role is missing or wrong.
    case noMethod = "no_method"
    case unknownRoute = "unknown_route"
}
