// Where a service beside the gateway listens and what is asked of it, as an operator writes it.
//
// Pure; nothing is looked up. Invariant: the request target begins with a slash.

package import SpoolgateUpstream

/// The address of one resource of a service.
package struct ServiceURL: Sendable, Equatable {
    /// The service.
    package let target: UpstreamTarget
    /// The request target that is asked for.
    package let requestTarget: String
    /// The text it was read from.
    package let text: String

    /// Reads `http://host[:port][/path]`, `https://…` or `unix:/path/of.sock[:/path]`; a query may
    /// follow the path.
    ///
    /// - Throws: `UpstreamTargetError`, a sentence about what is wrong with it.
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
        guard !target.standsAlone else {
            throw .init(reason: "it must begin with http://, https:// or unix:")
        }
        requestTarget = resource.isEmpty ? "/" : resource
        self.text = text
    }

    private static func split(_ text: String) -> (service: String, resource: String) {
        // Of a socket a second colon is behind its path, of a host the first slash.
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

/// A service beside the gateway that is asked over HTTP, and its limits.
package struct ServiceSettings: Sendable, Equatable {
    /// What is asked; nil: nothing.
    package var url: ServiceURL?
    /// Longest time to connect, and to wait for the answer.
    package var timeout = Duration.seconds(10)
    /// PEM file of the authorities to trust for https instead of the system's.
    package var certificateAuthority: String?
    /// PEM file of the client certificate.
    package var clientCertificate: String?
    /// PEM file of its key; nil: in `clientCertificate`.
    package var clientKey: String?

    /// How it is reached; nil where nothing is asked.
    package var upstream: UpstreamSettings? {
        url.map { url in
            UpstreamSettings(
                targets: [url.target],
                connectTimeout: timeout,
                stallTimeout: timeout,
                responseTimeout: timeout,
                certificateAuthority: certificateAuthority,
                clientCertificate: clientCertificate,
                clientKey: clientKey
            )
        }
    }
}
