// How a transfer ended, in libcurl's terms.
//
// Values only: what the end means for a request is its owner's to say. The invariant: what stands here is
// libcurl's own code.

import CSpoolgateCurl

/// libcurl's code for the end of a transfer.
package struct CurlEnd: Equatable, Sendable, CustomStringConvertible {
    private let code: UInt32

    init(_ code: CURLcode) { self.code = code.rawValue }

    /// The transfer came to its end.
    package static let whole = CurlEnd(CURLE_OK)
    /// A callback of this side ended it.
    package static let stopped = CurlEnd(CURLE_ABORTED_BY_CALLBACK)
    /// The host has no address.
    package static let noAddress = CurlEnd(CURLE_COULDNT_RESOLVE_HOST)
    /// Nobody takes connections there, or this side opened no socket.
    package static let noConnection = CurlEnd(CURLE_COULDNT_CONNECT)
    /// Connecting took too long.
    package static let timedOut = CurlEnd(CURLE_OPERATION_TIMEDOUT)
    /// TLS was not agreed on.
    package static let noTLS = CurlEnd(CURLE_SSL_CONNECT_ERROR)
    /// The other side's certificate is not trusted.
    package static let untrusted = CurlEnd(CURLE_PEER_FAILED_VERIFICATION)
    /// The file of trusted authorities could not be loaded.
    package static let badAuthorities = CurlEnd(CURLE_SSL_CACERT_BADFILE)
    /// This side's certificate, or its key, could not be used.
    package static let badCertificate = CurlEnd(CURLE_SSL_CERTPROBLEM)
    /// A write to the connection failed.
    package static let sendFailed = CurlEnd(CURLE_SEND_ERROR)
    /// The URL is none.
    package static let badURL = CurlEnd(CURLE_URL_MALFORMAT)
    /// The URL's scheme is not spoken.
    package static let badScheme = CurlEnd(CURLE_UNSUPPORTED_PROTOCOL)

    /// Whether libcurl failed inside this process, before the network: neither the request nor the other side is at fault.
    package var isOfProcess: Bool {
        [
            CURLE_FAILED_INIT, CURLE_OUT_OF_MEMORY, CURLE_NOT_BUILT_IN,
            CURLE_BAD_FUNCTION_ARGUMENT, CURLE_UNKNOWN_OPTION,
        ].contains(CURLcode(code))
    }

    /// libcurl's sentence for the code.
    package var description: String {
        guard let known = curl_easy_strerror(CURLcode(code)) else { return "curl error \(code)" }
        return String(cString: known)
    }
}
