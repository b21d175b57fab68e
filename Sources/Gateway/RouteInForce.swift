// A route's settings held by reference: thousands of requests wait at a time, each with frames that would
// hold copies of them.

/// The settings of one route as a request uses them.
///
/// Never changes; a request with settings of its own has a reference of its own.
@dynamicMemberLookup
final class RouteInForce: Sendable {
    /// What the operator set.
    let settings: Route

    init(_ settings: Route) { self.settings = settings }

    subscript<Value>(dynamicMember member: KeyPath<Route, Value>) -> Value {
        settings[keyPath: member]
    }

    /// The same with changes.
    func changed(_ change: (inout Route) -> Void) -> RouteInForce {
        var settings = settings
        change(&settings)
        return RouteInForce(settings)
    }
}
