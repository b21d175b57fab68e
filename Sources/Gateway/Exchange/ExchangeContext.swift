// What the web server says of one request beside the request itself: who, by which way, and what its
// parameters show of its configuration.

package import SpoolgateTextFormats

/// What the web server, as the operator's word, says of one request.
package struct ExchangeContext: Sendable, Equatable {
    /// The route's name; nil: the default route (`SPOOLGATE_ROUTE`).
    package var route: String?
    /// Who the client is; nil: unknown (`SPOOLGATE_OWNER`).
    package var owner: ExactText?
    /// The public origin, `https://example.org:8443`; nil: path-absolute `Location` (`SPOOLGATE_ORIGIN`).
    package var origin: String?
    /// What was passed for an origin and is none; nil: nothing was.
    package var badOrigin: String?
    /// The interim statuses the web server forwards (`SPOOLGATE_INTERIM`); empty: none.
    package var interimStatuses: Set<Int>
    /// The client's address (`REMOTE_ADDR`).
    package var remoteAddress: String?
    /// The scheme the client used (`REQUEST_SCHEME`).
    package var scheme: String?
    /// What its parameters show to be wrong with the web server's configuration.
    ///
    /// With `.badOrigin`, `badOrigin` says what was passed.
    package var faults: Set<FrontFault>

    /// Makes a context from its parts.
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

/// One kind of mistake in the configuration of the web server in front.
package enum FrontFault: String, Sendable, CaseIterable {
    /// The web server kept the content of an upload in a file before it passed it on.
    case buffered
    /// An nginx does not say whether it does so: the parameters are not the shipped ones.
    case bufferingUntold = "buffering_untold"
    /// No `SPOOLGATE_ORIGIN` was passed.
    case noOrigin = "no_origin"
    /// What was passed as `SPOOLGATE_ORIGIN` is no origin.
    case badOrigin = "bad_origin"
    /// A parameter is not passed or wrong, so that there is no request: `REQUEST_METHOD`, `REQUEST_URI`,
    /// `SPOOLGATE_INTERIM`, the role.
    case noMethod = "no_method"
    /// `SPOOLGATE_ROUTE` names a route that the settings do not have.
    case unknownRoute = "unknown_route"
}
