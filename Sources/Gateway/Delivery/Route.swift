// One route in force: its settings and what was made from them, held by reference: thousands of requests
// wait at a time, each with frames that would hold copies of it.

package import SpoolgateJournal
package import SpoolgatePosix
package import SpoolgateSettings
package import SpoolgateUploadProtocol
package import SpoolgateUpstream

/// One route as requests and deliveries use it.
///
/// Any thread. Never changes; a request with settings of its own has a reference of its own.
package final class Route: Sendable {
    /// Its name.
    package let name: String
    /// What the operator set.
    package let settings: RouteSettings
    /// The gateway whose route it is, as it names itself in requests.
    package let gateway: GatewayName
    /// How it names its upload resources.
    package let resources: UploadResources
    /// Who gets its uploads.
    package let upstream: Upstream
    /// Who is asked whether an upload may come in; nil: nobody.
    package let authorizer: Authorizer?
    /// What looks at a whole upload; nil: nothing.
    package let inspection: Inspection?
    /// What is counted of it.
    package let counts: RouteMetrics

    /// Makes a route from its settings.
    ///
    /// - Parameters:
    ///   - name: its name.
    ///   - settings: what the operator set; at least one target.
    ///   - gateway: the name of the gateway.
    ///   - node: the node whose uploads are made here; nil: there is one.
    ///   - old: the route of that name before, of which is kept what its settings do not change: open
    ///     connections, and places that are taken.
    ///   - metrics: where it counts.
    ///   - skipped: called where targets of the upstream were not reached and another one was.
    package init(
        _ name: String,
        _ settings: RouteSettings,
        of gateway: GatewayName,
        node: String?,
        keeping old: Route?,
        metrics: Metrics,
        skipped: @escaping @Sendable (_ reason: String) -> Void
    ) {
        self.name = name
        self.settings = settings
        self.gateway = gateway
        resources = UploadResources(prefix: settings.uploadResources, node: node)
        upstream =
            old.flatMap { $0.upstream.settings == settings.upstream ? $0.upstream : nil }
            ?? Upstream(settings.upstream, skipped: skipped)
        authorizer =
            old?.authorizer?.settings == settings.authorization
            ? old?.authorizer
            : Authorizer(settings.authorization, metrics.authorizerTimes, by: gateway)
        inspection =
            old?.inspection?.settings == settings.inspection
            ? old?.inspection : Inspection(settings.inspection, metrics.inspectionTimes)
        counts = metrics[name]
        // What failed at another upstream says nothing of this one.
        if old?.upstream.settings != settings.upstream { counts.health.reset() }
    }

    private init(_ route: Route, _ settings: RouteSettings) {
        name = route.name
        gateway = route.gateway
        upstream = route.upstream
        authorizer = route.authorizer
        inspection = route.inspection
        counts = route.counts
        self.settings = settings
        resources = route.resources
    }

    /// Its upstream's targets, as they are written in the settings.
    package var targets: [String] { settings.upstream.targets.map(\.text) }

    /// The same with changed settings, which what was made from them does not hear of.
    package func changed(_ change: (inout RouteSettings) -> Void) -> Route {
        var settings = settings
        change(&settings)
        return Route(self, settings)
    }

    /// Whether the client of a whole upload was told 202, and so hears nothing of what the upstream says.
    ///
    /// - Parameter nextAttempt: the upload's; nil where the queue does not have it.
    /// - Returns: whether the queue delivers it, and nobody waits.
    package func hasAccepted(nextAttempt: WallTime?) -> Bool {
        settings.reply == .accepted && nextAttempt != nil
    }
}
