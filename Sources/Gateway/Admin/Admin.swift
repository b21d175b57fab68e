// The responses of a running daemon to its operator: liveness, readiness, metrics and status.
//
// They have their own socket and threads, so that they work even if every other thread is in use. Invariants: a request
// changes nothing and waits for no stalled disk; clients of the uploads' socket have no access.

import HTTPTypes
import SpoolgateDelivery
package import SpoolgateExchange
import SpoolgateJournal
package import SpoolgatePosix
package import SpoolgateRequests
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// The load of the FastCGI listener that serves uploads.
package struct ListenerLoad: Sendable {
    /// The number of requests being processed.
    package var busy: Int
    package var maximum: Int
    package var isAccepting: Bool

    /// Creates the load from its values.
    package init(busy: Int, maximum: Int, isAccepting: Bool) {
        self.busy = busy
        self.maximum = maximum
        self.isAccepting = isAccepting
    }
}

/// Serves the admin pages of one daemon, such as its status and metrics.
///
/// Thread-safe.
package final class Admin: Sendable {
    let gateway: Gateway
    let node: String?
    let load: @Sendable () -> ListenerLoad
    let sampler: Sampler
    let meter: RateMeter
    private let isEnding = Counter()

    /// Creates the admin pages; call `start()` before serving requests.
    ///
    /// Pass nil as `node` if there is only one node. Any thread may call `load`.
    package init(
        _ gateway: Gateway,
        node: String? = nil,
        load: @escaping @Sendable () -> ListenerLoad
    ) {
        self.gateway = gateway
        self.node = node
        self.load = load
        let spool = gateway.deliveries.spool
        // `try?`: the sampler's trial reports a disk that fails.
        sampler = Sampler(spool) { try? spool.space() }
        meter = RateMeter(gateway.metrics)
    }

    /// Starts the threads that sample the state of the disk.
    package func start() throws(SystemError) {
        try sampler.start { [gateway] in QueueFigures(of: gateway).incoming > 0 }
    }

    /// Makes the readiness page report from now on that the daemon is not ready, because it is shutting down.
    package func noteEnd() { isEnding.set(1) }

    var isEnded: Bool { isEnding.count > 0 }

    /// The current routes, sorted by name.
    var routes: [Route] {
        gateway.deliveries.current.routes.values.sorted { $0.name < $1.name }
    }

    /// Responds to one request.
    ///
    /// Only the last segment of the path counts, because a web server may serve the pages under any path.
    package func serve(_ exchange: any Exchange) {
        switch exchange.head {
        case .failure(let refusal): exchange.respond(refusal.response)
        case .success(let head): exchange.respond(response(to: head))
        }
    }

    private func response(to head: RequestHead) -> Response {
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

    /// Returns how many bytes of an upload's content nginx and the gateway wrote, for `spoolgate show`; responds with
    /// 404 if this process does not know the upload.
    private func shares(of id: UploadID) -> Response {
        guard let shares = gateway.transfers.shares(of: id) else {
            return Self.text("Unknown upload.\n", status: .notFound)
        }
        return Self.text(shares.line + "\n")
    }

    /// How each route's last large content reached the spool, for `spoolgate check --live`.
    private var lastPaths: String {
        routes.map { "\($0.name) \($0.counts.lastContentPath?.label ?? "-")\n" }.joined()
    }

    private var readiness: Response {
        let checks = self.checks(load())
        let isReady = checks.allSatisfy(\.isGood)
        let members = checks.map { ($0.name, JSON.string($0.text)) }
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
        // Even if a client's text is not escaped, only `page.js` runs.
        response.head.fields[.contentSecurityPolicy] =
            "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
            + "base-uri 'none'; form-action 'none'; "
            + "frame-ancestors 'none'"
        return response
    }
}

/// A condition that must be met before requests are sent to the daemon.
struct Check: Sendable, Equatable {
    var name: String
    /// Why the condition is not met; nil if it is met.
    var fault: String?
    /// The text shown if the condition is met.
    var detail = ""

    var isGood: Bool { fault == nil }
    var text: String {
        fault.map { "fail: \($0)" } ?? (detail.isEmpty ? "ok" : "ok \(detail)")
    }
}

extension Admin {
    /// The conditions for readiness.
    ///
    /// An upstream that is down, refused settings and a full disk do not affect readiness, because uploads are still
    /// received and resumed, and the metrics report the problem. Delivery attempts that fail inside this process affect
    /// readiness.
    func checks(_ load: ListenerLoad) -> [Check] {
        [
            Check(name: "serving", fault: isEnded ? "shutting down" : nil),
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

    /// The condition that this process can deliver uploads; its detail names the failing routes.
    ///
    /// Failing routes do not affect readiness, because other gateways could not reach the upstream either.
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
