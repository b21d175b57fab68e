// What a probe is asked to look at.

package import HTTPTypes
package import SpoolgateCurl
package import SpoolgateExchange
package import SpoolgateUploadProtocol

/// Which upload URL to look at, as whom, and how closely.
package struct ProbeQuestion: Sendable {
    /// Where uploads are created.
    package var url: ProbeURL
    /// Fields of each request, such as a login.
    package var fields: HTTPFields = [:]
    /// The versions of HTTP to look at.
    package var versions = ClientRequest.Version.allCases
    /// Bytes that are sent for the speed, over each version.
    package var size: Int64 = 32 << 20
    /// The origin of pages that are to upload; nil: nobody asked.
    package var origin: String?
    /// PEM file of the authorities to trust instead of the system's.
    package var certificateAuthority: String?
    /// Whether to be silent for longer than servers usually bear.
    package var isThorough = false

    /// Says which path an upload's content took into the spool, nil if it is not known; nil: no daemon is asked.
    package var contentPath: (@Sendable (UploadID) -> ContentPath?)?
    /// What nginx says of content that it may write into the spool; nil: its files were not read.
    package var lane: NginxLane?

    /// Asks about a URL.
    package init(_ url: ProbeURL) { self.url = url }
}
