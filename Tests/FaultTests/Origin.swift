// The upstream of a sweep: it notes what it got of which upload and answers as the request asks it to.
//
// `X-Upload` names the upload, `X-Answer` how it is answered. Invariant: what is noted came whole.

import Foundation
import Posix
import Spool
import TestSupport
import UploadProtocol

/// An upstream that counts.
final class Origin: Sendable {
    /// How an upload is answered.
    enum Answer: String, Sendable {
        /// At once.
        case short
        /// At once, with more content than is stored.
        case long
        /// The first time the connection ends without an answer.
        case silent
        /// The first time the connection ends without an answer, after a heartbeat as below.
        case lateSilent
        /// The first time with an error.
        case refusing
        /// After the client has heard a heartbeat, or cannot hear one any more.
        case late
    }

    private struct State {
        var got: [Int: [[UInt8]]] = [:]
        var isOpen = false
    }

    private final class Book: Sendable {
        let state = Monitor(State())
    }

    private let book = Book()
    private let server: LoopbackOrigin
    private let path: String

    /// Listens on a socket below `directory`.
    init(directory: String) throws {
        path = "\(directory)/origin.sock"
        let book = self.book
        server = try LoopbackOrigin(socketPath: path) { connection in
            while let request = try connection.receiveRequest() {
                let number = request.values("X-Upload").first.flatMap { Int($0) } ?? -1
                let count = book.state.update { state in
                    state.got[number, default: []].append(request.content)
                    return state.got[number]?.count ?? 0
                }
                let answer = request.values("X-Answer").first.flatMap { Answer(rawValue: $0) }
                if answer == .late || answer == .lateSilent {
                    _ = book.state.wait(until: .after(.seconds(60))) { $0.isOpen ? true : nil }
                }
                switch answer {
                case .silent where count == 1, .lateSilent where count == 1: return
                case .refusing where count == 1:
                    try connection.answer("422 Unprocessable Content", content: "no")
                case .long: try connection.answer("200 OK", content: Self.text(number, .long))
                case .silent, .lateSilent, .late, .refusing, .short, nil:
                    try connection.answer("200 OK", content: Self.text(number, .short))
                }
            }
        }
    }

    /// How it is reached.
    var target: String { path }

    /// What it answers to an upload.
    static func text(_ number: Int, _ answer: Answer) -> String {
        "got \(number)." + (answer == .long ? String(repeating: "x", count: 2000) : "")
    }

    /// The contents that came for an upload.
    func got(_ number: Int) -> [[UInt8]] { book.state.update { $0.got[number] ?? [] } }

    /// Late answers may come.
    func open() { book.state.update { $0.isOpen = true } }

    /// Can be reached or not; a connection that is open stays.
    func setReachable(_ isReachable: Bool) {
        let away = "\(path).away"
        _ = isReachable ? rename(away, path) : rename(path, away)
    }

    func forget() {
        setReachable(true)
        book.state.update { $0 = State() }
    }
}
