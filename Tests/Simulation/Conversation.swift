// One request of a client, and what the client hears: with a simulated web server, or with nginx.

import SpoolgateExchange
import SpoolgatePosix
import SpoolgateRequests
import SpoolgateUploadProtocol

protocol Conversation: AnyObject, Sendable {
    /// What the client has heard so far.
    var heard: WebExchange.Heard { get }
    /// Whether the client, the web server and the gateway have ended it.
    var isOver: Bool { get }
    /// Whether the client pauses, and the gateway has received everything before.
    var isStuck: Bool { get }
    /// Whether the client left, or the daemon died.
    var isPeerGone: Bool { get }

    func start(with gateway: Gateway)
    func hangUp()
    /// Ends the pause of a client.
    func goOn(with rest: [UInt8], _ end: WebExchange.End)
}

extension World {
    /// Prepares a request to the current daemon.
    func conversation(
        _ request: RequestHead,
        _ context: ExchangeContext,
        content: [UInt8],
        end: WebExchange.End
    ) -> any Conversation {
        let (machine, process) = (machine, daemon.process)
        guard let web = WebServer.shared, let front = daemon.front else {
            return WebExchange(
                request,
                context,
                content: content,
                end: end,
                isDead: { machine.isDead(process) },
                onEvent: { machine.note() }
            )
        }
        let call = WireExchange(request, context, content, end, front, machine, process)
        web.add(call)
        return call
    }
}

extension WebExchange: Conversation {
    func start(with gateway: Gateway) {
        let started: Void? = try? Thread.start(name: "exchange", stackSize: 1 << 20) {
            gateway.serve(self)
            self.noteEnd()
        }
        if started == nil { noteEnd() }
    }
}
