// The settings that environment variables can set, so that a container needs no file.
//
// A new variable needs a row here and an entry in the section ENVIRONMENT of spoolgate.yaml(5); a test compares them.

import SpoolgatePosix

/// An environment variable that sets one setting.
package struct SettingsVariable: Sendable, Equatable {
    package let name: String
    /// The dotted key of the setting, such as `listen`.
    package let key: String

    private init(_ name: String, _ key: String) {
        self.name = "SPOOLGATE_\(name)"
        self.key = key
    }

    /// The prefix of the dotted keys of `default`, the only route that variables can set.
    static let routePrefix = "routes.\(RouteSettings.defaultName)."

    /// All variables that set settings.
    ///
    /// Other variables that begin with `SPOOLGATE_` are not settings. Kubernetes, for example, sets some for a service
    /// named spoolgate.
    package static let all = [
        SettingsVariable("UPSTREAM", routePrefix + "upstream"),
        SettingsVariable("ANONYMOUS", routePrefix + "anonymous"),
        SettingsVariable("AUTHORIZE_URL", routePrefix + "authorize.url"),
        SettingsVariable("MAX_SIZE", routePrefix + "limits.max-size"),
        SettingsVariable("REPLY", routePrefix + "reply"),
        SettingsVariable("FORM", routePrefix + "form"),
        SettingsVariable("CORS_ORIGINS", routePrefix + "cors.origins"),
        SettingsVariable("LISTEN", "listen"),
        SettingsVariable("SOCKET_MODE", "socket-mode"),
        SettingsVariable("SOCKET_GROUP", "socket-group"),
        SettingsVariable("ADMIN_LISTEN", "admin-listen"),
        SettingsVariable("NODE", "node"),
        SettingsVariable("SPOOL_DIRECTORY", "spool.directory"),
        SettingsVariable("SPOOL_RESERVE", "spool.reserve"),
        SettingsVariable("SPOOL_QUOTA", "spool.quota"),
        SettingsVariable("THREADS_MAXIMUM", "threads.maximum"),
        SettingsVariable("LOG_LEVEL", "log-level"),
        SettingsVariable("EVENTS_TO", "events.to"),
    ]

    /// Returns each variable that is set and not empty, with its value.
    ///
    /// - Throws: `SettingsError` if a value is not valid YAML.
    static func given(
        in environment: (String) -> String?
    ) throws(SettingsError) -> [(variable: SettingsVariable, value: SettingsValue)] {
        var given: [(variable: SettingsVariable, value: SettingsValue)] = []
        for variable in all {
            guard let text = environment(variable.name), !text.isEmpty else { continue }
            let node: YAMLNode?
            do throws(SettingsError) {
                guard !text.unicodeScalars.contains("\u{FFFD}") else {
                    throw variable.fault("the value is not UTF-8")
                }
                node = try YAMLDocument.root(of: text, file: variable.name)
            } catch {
                throw variable.fault(error.reason)
            }
            guard let node, !node.isNull else { continue }
            let value = SettingsValue(
                file: variable.name,
                name: variable.key,
                node: node,
                hasPlaces: false
            )
            given.append((variable, value))
        }
        return given
    }

    private func fault(_ reason: String) -> SettingsError {
        SettingsError(file: name, place: nil, reason: reason)
    }
}
