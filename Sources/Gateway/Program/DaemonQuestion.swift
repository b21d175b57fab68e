// Requests of commands to the running daemon, for data that is not on the disk.
//
// Invariant: a command does its own work even if no daemon runs or responds.

import SpoolgateDiagnosis
import SpoolgateExchange
import SpoolgateFastCGIFront
import SpoolgatePosix
import SpoolgateRequests
import SpoolgateUploadProtocol

/// Sends requests to the daemon's admin socket.
struct DaemonQuestion {
    private let question: FastCGIQuestion

    /// The longest wait for a response, which the daemon makes from memory on threads of its own.
    private static let timeout = Duration.seconds(2)

    /// Creates requests to the socket at this path.
    init(_ socket: String) { question = FastCGIQuestion(path: socket, timeout: Self.timeout) }

    /// The writers of an upload's content; nil: no daemon runs, access is denied, or the daemon does not know the
    /// upload.
    func shares(of id: UploadID) -> ContentShares? {
        text("/uploads/\(id)").flatMap { ContentShares(line: $0.prefix { $0 != "\n" }) }
    }

    /// The path of an upload's content into the spool; nil: unknown, as for `shares(of:)`, or no content has ended yet.
    func contentPath(of id: UploadID) -> ContentPath? {
        shares(of: id).flatMap { $0.nginx > 0 ? .taken : $0.path }
    }

    /// The path of the last large content of each route, by route name; nil: no daemon runs, or access is denied.
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

    /// The state of the daemon, as it reports it.
    func status() -> DaemonSeen.Answer {
        do throws(SystemError) {
            let answer = try question.get("/status.txt")
            guard answer.status == 200 else {
                return .silence("it responded with \(answer.status)")
            }
            let text = String(decoding: answer.content, as: UTF8.self)
            return .status(String(text.prefix { $0 != "\n" }))
        } catch {
            return error.isRefusal ? .nobody : error.isDenial ? .denied : .silence("\(error)")
        }
    }

    private func text(_ target: String) -> String? {
        // `try?`: missing data is left out of the output.
        guard let answer = try? question.get(target), answer.status == 200 else { return nil }
        return String(decoding: answer.content, as: UTF8.self)
    }
}
