// The options of a probe.

package import HTTPTypes
package import SpoolgateCurl
package import SpoolgateExchange
package import SpoolgateUploadProtocol

/// The URL to probe, the login and the extent of the probe.
package struct ProbeQuestion: Sendable {
    /// The URL of creations.
    package var url: ProbeURL
    /// Fields of each request, such as a login.
    package var fields: HTTPFields = [:]
    /// The versions of HTTP to test.
    package var versions = ClientRequest.Version.allCases
    /// The number of bytes sent to measure the speed of each version.
    package var size: Int64 = 32 << 20
    /// The origin of pages that should be able to upload; nil to skip the check.
    package var origin: String?
    /// A PEM file of authorities to trust instead of the system's.
    package var certificateAuthority: String?
    /// Whether to test a long pause in the content.
    package var isThorough = false

    /// Returns the path of an upload's content into the spool, or nil if it is unknown; nil if the daemon is not
    /// queried.
    package var contentPath: (@Sendable (UploadID) -> ContentPath?)?
    /// The state of nginx that decides whether it writes content into the spool; nil if its files were not read.
    package var lane: NginxLane?

    /// Creates the default options for a URL.
    package init(_ url: ProbeURL) { self.url = url }
}
