// What commands ask the running daemon beside what they read themselves.
//
// Invariant: a daemon that does not run, or does not answer, keeps no command from its own work.

import SpoolgateDiagnosis
import SpoolgateExchange
import SpoolgateFastCGIFront
import SpoolgatePosix
import SpoolgateRequests
import SpoolgateUploadProtocol

/// Asks the daemon on its admin socket.
struct DaemonQuestion {
    private let question: FastCGIQuestion

    /// How long the answer may be late: the daemon makes it from memory, on threads of its own.
    private static let timeout = Duration.seconds(2)

    /// Makes it with the socket's path.
    init(_ socket: String) { question = FastCGIQuestion(path: socket, timeout: Self.timeout) }

    /// Who wrote an upload's content; nil: no daemon runs, it may not be asked, or it does not know.
    func shares(of id: UploadID) -> ContentShares? {
        text("/uploads/\(id)").flatMap { ContentShares(line: $0.prefix { $0 != "\n" }) }
    }

    /// The path that an upload's content took; nil: not known, as above, or no content has ended yet.
    func contentPath(of id: UploadID) -> ContentPath? {
        shares(of: id).flatMap { $0.nginx > 0 ? .taken : $0.path }
    }

    /// The path of the last large content of each route, by its name; nil: no daemon runs, or it may not be asked.
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

    /// How the daemon is, as it says.
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
        // `try?`: what it could not say is left out.
        guard let answer = try? question.get(target), answer.status == 200 else { return nil }
        return String(decoding: answer.content, as: UTF8.self)
    }
}
