// Requests of commands to the running daemon, for data that is not on the disk.
//
// Invariant: a command does its own work even if no daemon runs or responds.

import SpoolgateDiagnosis
import SpoolgateExchange
import SpoolgateFastCGIFront
import SpoolgatePosix
import SpoolgateRequests
import SpoolgateUploadProtocol

struct DaemonRequest {
    private let client: FastCGIFetch

    /// Short, because the daemon responds from memory, on threads that serve no uploads.
    private static let timeout = Duration.seconds(2)

    /// Creates the sender for the admin socket at this path, without connecting.
    init(_ socket: String) { client = FastCGIFetch(path: socket, timeout: Self.timeout) }

    /// Returns the shares; nil if no daemon is running, access is denied or the daemon does not know the upload.
    func shares(of id: UploadID) -> ContentShares? {
        text("/uploads/\(id)").flatMap { ContentShares(line: $0.prefix { $0 != "\n" }) }
    }

    /// Returns how the content reached the spool; nil if no request with content has ended, or as for `shares(of:)`.
    func contentPath(of id: UploadID) -> ContentPath? {
        shares(of: id).flatMap { $0.nginx > 0 ? .used : $0.path }
    }

    /// Returns how the last large content of each route reached the spool, keyed by route; nil if no daemon is running
    /// or access is denied.
    func lastPaths() -> [String: ContentPath?]? {
        text("/spool-receive").map { text in
            let rows = text.split(separator: "\n").map { $0.split(separator: " ") }
            return Dictionary(
                rows.filter { $0.count == 2 }
                    .map { (String($0[0]), ContentPath(label: $0[1])) },
                uniquingKeysWith: { first, _ in first }
            )
        }
    }

    /// Returns the first line of the status, or why the daemon did not send one.
    func status() -> DaemonEvidence.Response {
        do throws(SystemError) {
            let response = try client.get("/status.txt")
            guard response.status == 200 else {
                return .silence("it responded with \(response.status)")
            }
            let text = String(decoding: response.content, as: UTF8.self)
            return .status(String(text.prefix { $0 != "\n" }))
        } catch {
            return error.isRefusal ? .noListener : error.isDenial ? .denied : .silence("\(error)")
        }
    }

    private func text(_ target: String) -> String? {
        // Missing data is left out of the output.
        guard let response = try? client.get(target), response.status == 200 else { return nil }
        return String(decoding: response.content, as: UTF8.self)
    }
}
