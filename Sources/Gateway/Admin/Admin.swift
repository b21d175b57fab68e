// What an operator asks a running daemon: whether it lives, whether it is ready, what it counts, how things are.
//
// It has a socket and threads of its own, so that it answers when every other thread is taken. Invariants: asking
// changes nothing and reads nothing of the spool; nothing here is told to who reaches only the uploads' socket.

import HTTPTypes
import SpoolgateDelivery
package import SpoolgateExchange
import SpoolgateJournal
package import SpoolgatePosix
package import SpoolgateRequests
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// What the front that serves uploads says of itself.
package struct FrontLoad: Sendable {
    /// Requests at work now, and how many there may be.
    package var busy: Int
    /// Most requests at a time.
    package var maximum: Int
    /// Whether some thread takes up connections.
    package var isAccepting: Bool

    /// Makes it from its parts.
    package init(busy: Int, maximum: Int, isAccepting: Bool) {
        self.busy = busy
        self.maximum = maximum
        self.isAccepting = isAccepting
    }
}

/// Answers an operator's questions about one daemon.
///
/// Any thread.
package final class Admin: Sendable {
    let gateway: Gateway
    let version: String
    let build: String?
    let node: String?
    let load: @Sendable () -> FrontLoad
    let sampler: Sampler
    let meter: RateMeter
    private let isEnding = Counter()

    /// Makes it; `start` must follow.
    ///
    /// - Parameters:
    ///   - gateway: the gateway.
    ///   - version: the program's.
    ///   - build: which build of that version it is; nil: not known.
    ///   - node: the node that this is; nil: there is one.
    ///   - load: what the front that serves uploads says of itself; called by any thread.
    package init(
        _ gateway: Gateway,
        version: String,
        build: String? = nil,
        node: String? = nil,
        load: @escaping @Sendable () -> FrontLoad
    ) {
        self.gateway = gateway
        self.version = version
        self.build = build
        self.node = node
        self.load = load
        sampler = Sampler(gateway.deliveries.spool)
        meter = RateMeter(gateway.metrics)
    }

    /// Starts looking at the disk now and then.
    /// - Throws: `SystemError` when no thread can be started.
    package func start() throws(SystemError) {
        try sampler.start { [gateway] in QueueFigures(of: gateway).incoming > 0 }
    }

    /// Says from now on that it is not ready, because the daemon ends.
    package func noteEnd() { isEnding.set(1) }

    var isOver: Bool { isEnding.count > 0 }

    /// The routes in force, by name.
    var routes: [Route] {
        gateway.deliveries.current.routes.values.sorted { $0.name < $1.name }
    }

    /// Answers one request.
    ///
    /// The last part of the path says what is asked for, whatever stands before it: a web server may have it
    /// below any path.
    package func serve(_ exchange: any Exchange) {
        switch exchange.head {
        case .failure(let refusal): exchange.answer(refusal.response)
        case .success(let head): exchange.answer(answer(to: head))
        }
    }

    private func answer(to head: RequestHead) -> Response {
        let name = head.path.split(separator: "/", omittingEmptySubsequences: false).last ?? ""
        guard let make = page(named: name) else {
            return Self.text("Page not found.\n", status: .notFound)
        }
        guard head.method == .get || head.method == .head else {
            var response = Self.text("Only GET and HEAD are allowed.\n", status: .methodNotAllowed)
            response.head.fields[.allow] = "GET, HEAD"
            return response
        }
        return make()
    }

    /// What makes the answer for a name; nil where there is no such page.
    private func page(named name: Substring) -> (() -> Response)? {
        switch name {
        case "": { Self.page(Status(of: self).html) }
        case "page.js": { Self.response(StatusPage.script, "text/javascript; charset=utf-8") }
        case "style.css": { Self.response(StatusPage.style, "text/css; charset=utf-8") }
        case "live": { Self.text("live\n") }
        case "ready": { self.readiness }
        case "metrics":
            { Self.response(self.metricsText, "text/plain; version=0.0.4; charset=utf-8") }
        case "status": { Self.json(Status(of: self).json) }
        case "status.txt": { Self.text(Status(of: self).text) }
        case "spool-receive": { Self.text(self.lastPaths) }
        default: UploadID(name).map { id in { self.shares(of: id) } }
        }
    }

    /// Who wrote an upload's content, for `spoolgate show`.
    private func shares(of id: UploadID) -> Response {
        guard let shares = gateway.transfers.shares(of: id) else {
            return Self.text("Unknown upload.\n", status: .notFound)
        }
        return Self.text(shares.line + "\n")
    }

    /// The path of the last large content on each route, a line each, for `spoolgate check --live`.
    private var lastPaths: String {
        routes.map { "\($0.name) \($0.counts.lastContentPath?.label ?? "-")\n" }.joined()
    }

    private var readiness: Response {
        let checks = self.checks(load())
        let isReady = checks.allSatisfy(\.isGood)
        let members = checks.map { (name: $0.name, value: JSON.string($0.text)) }
        var response = Self.json(
            .object([("ready", .boolean(isReady)), ("checks", .object(members))])
        )
        if !isReady { response.head.status = .serviceUnavailable }
        return response
    }

    // MARK: Answers

    private static func response(
        _ content: String,
        _ type: String,
        status: HTTPResponse.Status = .ok
    ) -> Response {
        Response(
            ResponseHead(
                status: status,
                fields: [
                    .contentType: type, .cacheControl: "no-store", .xContentTypeOptions: "nosniff",
                ]
            ),
            content: Array(content.utf8)
        )
    }

    private static func text(_ text: String, status: HTTPResponse.Status = .ok) -> Response {
        response(text, "text/plain; charset=utf-8", status: status)
    }

    private static func json(_ value: JSON) -> Response {
        response(value.text + "\n", "application/json")
    }

    private static func page(_ html: String) -> Response {
        var response = Self.response(html, "text/html; charset=utf-8")
        // A word of a client that gets in stays a word: no script runs but `page.js`.
        response.head.fields[.contentSecurityPolicy] =
            "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
            + "base-uri 'none'; form-action 'none'; "
            + "frame-ancestors 'none'"
        return response
    }
}

/// One thing without which the daemon should get no requests.
struct Check: Sendable, Equatable {
    /// What it is about.
    var name: String
    /// Why it is not so; nil: it is.
    var fault: String?
    /// What is said of it beside that it is so.
    var detail = ""

    var isGood: Bool { fault == nil }
    /// The check in words: `ok`, or what is wrong.
    var text: String {
        fault.map { "fail: \($0)" } ?? (detail.isEmpty ? "ok" : "ok \(detail)")
    }
}

extension Admin {
    /// What decides whether the daemon is ready.
    ///
    /// Not among it: an upstream that is down, settings that were not taken, a disk that is full. Uploads are
    /// received and resumed then, and the metrics tell. An attempt that fails inside this process is among it.
    func checks(_ load: FrontLoad) -> [Check] {
        [
            Check(name: "serving", fault: isOver ? "shutting down" : nil),
            Check(
                name: "accepting",
                fault: load.isAccepting ? nil : "no thread accepts connections"
            ),
            Check(
                name: "threads",
                fault: load.busy < load.maximum
                    ? nil : "all threads are in use (threads.maximum: \(load.maximum))",
                detail: "\(load.busy)/\(load.maximum)"
            ),
            Check(name: "spool-writable", fault: sampler.fault),
            deliveries,
        ]
    }

    /// Whether this process can deliver; names the routes whose upstreams do not take uploads.
    ///
    /// Those leave it ready: another gateway would not reach the same upstream either, and this one still keeps what
    /// clients send.
    private var deliveries: Check {
        let fault = routes.lazy.compactMap { route in
            route.counts.health.localFault.map { reason in
                "route \(route.name): \(reason); restart the daemon"
            }
        }.first
        let failing = routes.filter { $0.counts.health.failing != nil }.map(\.name)
        return Check(
            name: "deliveries",
            fault: fault,
            detail: failing.isEmpty ? "" : "(failing: \(failing.joined(separator: ", ")))"
        )
    }
}

extension HTTPField.Name {
    fileprivate static let xContentTypeOptions = made("x-content-type-options")
    fileprivate static let contentSecurityPolicy = made("content-security-policy")
}
