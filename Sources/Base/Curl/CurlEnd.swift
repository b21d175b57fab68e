// Results of transfers.

import CSpoolgateCurl

/// libcurl's result code of a transfer.
package struct CurlEnd: Equatable, Sendable, CustomStringConvertible {
    private let code: UInt32

    init(_ code: CURLcode) { self.code = code.rawValue }

    package static let whole = CurlEnd(CURLE_OK)
    package static let stopped = CurlEnd(CURLE_ABORTED_BY_CALLBACK)
    package static let noAddress = CurlEnd(CURLE_COULDNT_RESOLVE_HOST)
    /// The peer refused the connection, or this side opened no socket.
    package static let noConnection = CurlEnd(CURLE_COULDNT_CONNECT)
    /// Connecting took too long.
    package static let timedOut = CurlEnd(CURLE_OPERATION_TIMEDOUT)
    package static let noTLS = CurlEnd(CURLE_SSL_CONNECT_ERROR)
    package static let untrusted = CurlEnd(CURLE_PEER_FAILED_VERIFICATION)
    package static let badAuthorities = CurlEnd(CURLE_SSL_CACERT_BADFILE)
    /// This side's certificate or key is unusable.
    package static let badCertificate = CurlEnd(CURLE_SSL_CERTPROBLEM)
    package static let sendFailed = CurlEnd(CURLE_SEND_ERROR)
    package static let badURL = CurlEnd(CURLE_URL_MALFORMAT)
    package static let badScheme = CurlEnd(CURLE_UNSUPPORTED_PROTOCOL)

    /// Whether libcurl failed inside this process, so that neither the request nor the peer is at fault.
    package var isOfProcess: Bool {
        [
            CURLE_FAILED_INIT, CURLE_OUT_OF_MEMORY, CURLE_NOT_BUILT_IN,
            CURLE_BAD_FUNCTION_ARGUMENT, CURLE_UNKNOWN_OPTION,
        ].contains(CURLcode(code))
    }

    package var description: String {
        guard let known = curl_easy_strerror(CURLcode(code)) else { return "curl error \(code)" }
        return String(cString: known)
    }
}
