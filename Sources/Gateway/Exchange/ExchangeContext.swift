// The web server's parameters about a request: the client, the connection, and mistakes in the configuration.

package import SpoolgateTextFormats

/// The parameters that the operator has the web server pass with a request.
package struct ExchangeContext: Sendable, Equatable {
    /// The route's name; nil: the default route (`SPOOLGATE_ROUTE`).
    package var route: String?
    /// The client's identity; nil if unknown (`SPOOLGATE_OWNER`).
    package var owner: ExactText?
    /// The public origin, such as `https://example.org:8443`; nil: `Location` has no origin (`SPOOLGATE_ORIGIN`).
    package var origin: String?
    /// An invalid origin, as passed; nil if there was none.
    package var badOrigin: String?
    /// The interim statuses that the web server forwards (`SPOOLGATE_INTERIM`).
    package var interimStatuses: Set<Int>
    /// The client's address (`REMOTE_ADDR`).
    package var remoteAddress: String?
    /// The scheme that the client used (`REQUEST_SCHEME`).
    package var scheme: String?
    /// The mistakes in the web server's configuration that the parameters reveal.
    ///
    /// With `.badOrigin`, `badOrigin` is the value passed.
    package var faults: Set<FrontFault>

    /// Creates a context.
    package init(
        route: String? = nil,
        owner: ExactText? = nil,
        origin: String? = nil,
        badOrigin: String? = nil,
        interimStatuses: Set<Int> = [],
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
    /// The web server stored an upload's content in a file before it passed the content on.
    case buffered
    /// nginx does not report whether it does so, because it does not pass the shipped parameters.
    case bufferingUntold = "buffering_untold"
    /// `SPOOLGATE_ORIGIN` is not passed.
    case noOrigin = "no_origin"
    /// The value of `SPOOLGATE_ORIGIN` is not an origin.
    case badOrigin = "bad_origin"
    /// A required parameter is missing or wrong, so that the request is invalid: `REQUEST_METHOD`, `REQUEST_URI`,
    /// `SPOOLGATE_INTERIM`, the role.
    case noMethod = "no_method"
    /// `SPOOLGATE_ROUTE` names a route that is not in the settings.
    case unknownRoute = "unknown_route"
}
