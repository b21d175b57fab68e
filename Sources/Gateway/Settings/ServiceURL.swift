// URLs of services in the settings.
//
// Names are not resolved. Invariant: the request target begins with a slash.

package import SpoolgateCurl
package import SpoolgateUpstream

/// The URL of a single resource of an HTTP service, such as an authorizer.
package struct ServiceURL: Sendable, Equatable {
    package let target: UpstreamTarget
    /// The request target: the path and query of the resource.
    package let requestTarget: String
    /// The URL as written in the settings.
    package let text: String

    /// Parses `http://host[:port][/path]`, `https://…` or `unix:/path/of.sock[:/path]`; a query may follow the path.
    package init(_ text: String) throws(UpstreamTargetError) {
        let (service, resource) = Self.split(text)
        guard !resource.contains("#") else { throw .init(reason: "a URL must not have a fragment") }
        guard resource.utf8.allSatisfy({ $0 > 0x20 && $0 != 0x7f }) else {
            throw .init(reason: "a URL must not have spaces or control characters")
        }
        guard resource.isEmpty || resource.hasPrefix("/") else {
            throw .init(
                reason: "the path must begin with a slash, as in unix:/run/app.sock:/events"
            )
        }
        target = try UpstreamTarget(service)
        guard target.store == nil else {
            throw .init(reason: "it must begin with http://, https:// or unix:")
        }
        requestTarget = resource.isEmpty ? "/" : resource
        self.text = text
    }

    private static func split(_ text: String) -> (service: String, resource: String) {
        // The resource begins after the second colon of a socket, or at the first slash after a host.
        let forms: [(scheme: String, mark: Character)] = [
            ("unix:", ":"), ("http://", "/"), ("https://", "/"),
        ]
        guard let form = forms.first(where: { text.hasPrefix($0.scheme) }),
            let end = text.dropFirst(form.scheme.count).firstIndex(of: form.mark)
        else { return (text, "") }
        let resource = text[end...]
        return (String(text[..<end]), String(form.mark == ":" ? resource.dropFirst() : resource))
    }
}

/// The settings of an HTTP service that the gateway uses, such as an authorizer.
package struct ServiceSettings: Sendable, Equatable {
    /// The resource that the gateway requests, or nil if no service is used.
    package var url: ServiceURL?
    /// The maximum time to connect, and to wait for the response.
    package var timeout = Duration.seconds(10)
    package var tls = TLSFiles()

    package var upstream: UpstreamSettings? {
        url.map { url in
            var settings = UpstreamSettings(
                targets: [url.target],
                connectTimeout: timeout,
                stallTimeout: timeout,
                responseTimeout: timeout
            )
            settings.tls = tls
            settings.hasOneTimeout = true
            return settings
        }
    }
}
