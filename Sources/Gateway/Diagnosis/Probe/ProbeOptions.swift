// The options of a probe.

package import HTTPTypes
package import SpoolgateCurl
package import SpoolgateExchange
package import SpoolgateUploadProtocol

/// The URL to probe, the login and the checks to make.
package struct ProbeOptions: Sendable {
    /// The URL to which clients send creations.
    package var url: ProbeURL
    /// Fields to add to each request, such as a login.
    package var fields: HTTPFields = [:]
    package var versions = ClientRequest.Version.allCases
    /// The number of bytes sent to measure the speed of each version.
    package var size: Int64 = 32 << 20
    /// The origin of pages that should be able to upload (CORS), or nil to skip this check.
    package var origin: String?
    /// The path of a PEM file of certificate authorities to trust.
    ///
    /// If nil, the system's are trusted.
    package var certificateAuthority: String?
    /// Whether to test a pause of over a minute in the content.
    package var isThorough = false

    /// Asks the daemon how an upload's content reached the spool.
    ///
    /// Returns nil if the path is unknown. If the property itself is nil, the check is skipped.
    package var contentPath: (@Sendable (UploadID) -> ContentPath?)?
    /// The directives and limits of nginx that decide whether nginx writes content into the spool; nil if its files
    /// were not read.
    package var lane: NginxLane?

    /// Creates the default options for a URL.
    package init(_ url: ProbeURL) { self.url = url }
}
