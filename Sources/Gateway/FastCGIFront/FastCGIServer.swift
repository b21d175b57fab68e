// The FastCGI listener: threads that accept connections and serve one request at a time each.
//
// Invariants: even if all threads are busy, one can soon accept again, so that requests are rejected rather than left
// waiting; a peer that neither sends nor reads never occupies a thread longer than `Settings` allows.

package import SpoolgateExchange
package import SpoolgatePosix

/// An event of the listener that may concern an operator.
package enum ListenerEvent: Sendable, Equatable {
    /// No connection could be accepted for lack of descriptors or memory; accepting is retried.
    case acceptFailed(SystemError)
    /// No thread could be started, so fewer requests are served at a time.
    case threadFailed(SystemError)
    /// A peer did not send a valid request in time.
    case noRequest
    /// The handler sent no response, or less content than it announced.
    case incompleteResponse
}

/// A FastCGI responder on one listener.
package final class FastCGIServer: Sendable {
    /// Sizes and limits.
    package struct Settings: Sendable {
        /// The name of the threads; must be at most 9 bytes.
        package var name = "fastcgi"
        /// The number of threads that wait for connections even without load, at least 1; `start()` starts at least 2.
        ///
        /// After a busy period, up to four times as many remain.
        package var minimumSpare = 16
        /// The maximum number of threads, and thus of requests; further connections wait to be accepted.
        ///
        /// Each thread costs about 50 KiB, and the descriptors of its request.
        package var maximum = 2000
        /// The maximum number of idle connections kept for further requests; each uses a descriptor but no thread.
        ///
        /// Above this number, the web server is asked to close the oldest ones.
        package var maximumKept = ThreadBudget.keptConnections
        /// How long a web server has to close a connection when asked to.
        package var releaseTimeout = Duration.seconds(2)
        /// The size of a thread's stack in bytes; only the pages used cost memory.
        package var stackSize = 256 * 1024
        /// The time without any byte in either direction after which a request is aborted.
        package var stallTimeout = Duration.seconds(90)
        /// The time within which all parameters must arrive; otherwise the connection is closed.
        package var parametersTimeout = Duration.seconds(10)
        /// How long the web server may be silent after a response that precedes the content's end.
        ///
        /// nginx closes the connection within milliseconds; HAProxy, Apache with HTTP/2 and Caddy do not.
        package var lingerIdle = Duration.milliseconds(200)
        /// The maximum total wait after such a response, even while the web server is sending.
        package var lingerTotal = Duration.seconds(2)
        package var limits = RequestParameters.Limits()

        /// Creates the default settings.
        package init() {}
    }

    private let settings: Settings
    private let listener: Listener
    private let pool: Monitor<ThreadPool>
    private let kept: Monitor<KeptConnections>
    private let ready: EventPoll
    private let watched = Monitor(Watched())
    private let report: @Sendable (ListenerEvent) -> Void
    private let respond: @Sendable (any Exchange, Bool) -> Void

    private struct Watched {
        var isEnded = false
        /// The connections asked to stop receiving, with the times at which their waits are interrupted.
        var released: [(connection: Connection, at: Deadline)] = []
    }

    /// Prepares a server; `start` starts it.
    ///
    /// Signals must be blocked before (`Signals.block`). Initialises libfcgi, and undoes the signal handlers that
    /// libfcgi installs. libfcgi's two environment variables have no effect because they control its accept and its
    /// draining close, which are not used.
    ///
    /// `report` receives events on any thread and must not block for long. `respond` serves one request on its thread,
    /// completely. If `isLast` is true, no other thread accepts connections, so `respond` must return soon.
    ///
    /// - Throws: `SystemError` if libfcgi cannot be initialised, or if the system has no room to wait for connections.
    package init(
        settings: Settings,
        listener: consuming Listener,
        report: @escaping @Sendable (ListenerEvent) -> Void,
        respond: @escaping @Sendable (_ exchange: any Exchange, _ isLast: Bool) -> Void
    ) throws(SystemError) {
        try FastCGIRequest.prepare()
        listener.setNoDelay()
        ready = try EventPoll()
        kept = Monitor(
            KeptConnections(maximum: settings.maximumKept, patience: settings.releaseTimeout)
        )
        self.settings = settings
        self.listener = listener
        self.report = report
        self.respond = respond
        pool = Monitor(
            ThreadPool(
                minimumSpare: settings.minimumSpare,
                maximum: settings.maximum
            )
        )
    }

    package var load: (active: Int, threads: Int, kept: Int) {
        let (active, threads) = pool.update { ($0.active, $0.threads) }
        return (active, threads, kept.update { $0.count })
    }

    /// Returns whether a thread accepts connections, after a test that lasts at most `patience`.
    package func isAccepting(within patience: Duration) -> Bool {
        ready.isServed(within: patience)
    }

    /// Starts the threads.
    ///
    /// - Throws: `SystemError` if not even one thread that accepts can be started.
    package func start() throws(SystemError) {
        try ready.watch(listener, as: Self.listening)
        try Thread.start(name: "\(settings.name)-watch", stackSize: settings.stackSize) {
            self.watch()
        }
        try startThread()
        for _ in 1..<max(2, settings.minimumSpare) {
            do throws(SystemError) {
                try startThread()
            } catch {
                return report(.threadFailed(error))
            }
        }
    }

    /// Shuts down: accepts no more connections, has the kept ones closed, and waits for all requests.
    ///
    /// Then removes the socket file if it belongs to this server. `interrupt` must ask requests that need not continue
    /// to end. It is called several times a second to reach those that have just arrived.
    ///
    /// - Returns: false if `deadline` passed first; the remaining requests then run until the process ends.
    package func drain(until deadline: Deadline, interrupt: () -> Void) -> Bool {
        listener.stop()
        kept.update { $0.end() }
        // nginx sends parameters together with the connection, so a connection without them has no request.
        let grace = Deadline.after(min(settings.parametersTimeout, .seconds(1)))
        let closing = Deadline.after(settings.releaseTimeout)
        var isAccepting = true
        var ended: Void?
        repeat {
            interrupt()
            if isAccepting, closing.hasPassed || isIdle {
                isAccepting = false
                stopWaiting()
            }
            if grace.hasPassed { for connection in pool.update({ $0.silent }) { connection.cut() } }
            let next = min(deadline, .after(.milliseconds(isAccepting ? 10 : 100)))
            ended = pool.wait(until: next) { $0.threads == 0 ? () : nil }
        } while ended == nil && !deadline.hasPassed
        if isAccepting { stopWaiting() }
        // Until the last request ends, a wait may have to be interrupted.
        if ended != nil { watched.update { $0.isEnded = true } }
        listener.remove()
        return ended != nil || pool.update { $0.active } == 0
    }

    private var isIdle: Bool { pool.update { $0.active == 0 } && kept.update { $0.isEmpty } }

    private func stopWaiting() {
        for connection in kept.update({ $0.close() }) { connection.close() }
        pool.update { $0.drain() }
        ready.wakeAll()
    }
}

// MARK: Threads

extension FastCGIServer {
    private func startThread() throws(SystemError) {
        pool.update { $0.threadStarts() }
        try startCountedThread()
    }

    private func startCountedThread() throws(SystemError) {
        do throws(SystemError) {
            try Thread.start(name: settings.name, stackSize: settings.stackSize) { self.run() }
        } catch {
            pool.update { $0.idleThreadEnds() }
            throw error
        }
    }

    private func run() {
        let request = FastCGIRequest()
        while let connection = nextConnection() {
            let deadline = Deadline.after(settings.parametersTimeout)
            let (startsSuccessor, ended) = pool.update {
                $0.take(connection, parametersBy: deadline)
            }
            // The last thread must be free soon, because no other thread accepts connections.
            let isLast = startsSuccessor && !startSuccessor()
            if serve(connection, request, isLast: isLast, since: ended) == .kept {
                keep(connection)
            }
            connection.close()
            guard pool.update({ $0.giveBack(connection) }) else { return }
        }
    }

    /// Starts the thread that accepts the next connection; returns false if no thread can accept it now.
    private func startSuccessor() -> Bool {
        do throws(SystemError) {
            try startCountedThread()
            return true
        } catch {
            report(.threadFailed(error))
            return pool.update { $0.idle > 0 }
        }
    }

    /// The listener's token; connections have higher ones.
    private static let listening: UInt64 = 0

    /// Waits for a connection with data to read.
    ///
    /// Returns nil if this thread must end.
    private func nextConnection() -> Connection? {
        while !pool.update({ $0.isDraining }) {
            guard let event = ready.next() else { continue }
            if event.token == Self.listening {
                if let connection = accept() { return connection }
                continue
            }
            guard let connection = kept.update({ $0.take(event.token) }) else { continue }
            // Bytes that precede the peer's close are served, as on a new connection.
            if !event.isHungUp || connection.readableBytes > 0 { return connection }
            connection.close()
        }
        pool.update { $0.idleThreadEnds() }
        return nil
    }

    /// Accepts a waiting connection, and has another thread wait for the next one.
    private func accept() -> Connection? {
        let ended = pool.update { $0.ended }
        let isEnding = kept.update { $0.isEnding }
        if isEnding, listener.isInherited { return nil }
        do throws(SystemError) {
            let connection = try listener.accept()
            // During a shutdown, only the connections that are already waiting are served.
            if connection != nil || !isEnding { listen() }
            return connection
        } catch {
            report(.acceptFailed(error))
            waitForRoom(since: ended)
            listen()
            return nil
        }
    }

    /// Enables one event for the next connection.
    private func listen() {
        do throws(SystemError) { try ready.watch(listener, as: Self.listening) } catch {
            report(.acceptFailed(error))
        }
    }

    private func keep(_ connection: Connection) {
        guard let connection = connection.handedOn(),
            let token = kept.update({ $0.add(connection) })
        else { return }
        do throws(SystemError) { try ready.watch(connection, as: token) } catch {
            report(.acceptFailed(error))
            _ = kept.update { $0.take(token) }
        }
    }

    /// Waits up to half a second for a connection to end, after a lack of descriptors.
    private func waitForRoom(since ended: UInt64) {
        let _: Void? = pool.wait(until: .after(.milliseconds(500))) {
            $0.isDraining || $0.ended != ended ? () : nil
        }
    }

    /// Asks a connection's request to stop receiving.
    ///
    /// If the peer is sending, the request stops by itself, and its response arrives. If the peer is silent, the wait
    /// is interrupted; a peer that then sends receives an error (nginx responds with 502).
    private func release(_ connection: Connection) {
        guard connection.release() else { return }
        let due = Deadline.after(.milliseconds(100))
        watched.update { $0.released.append((connection, due)) }
    }

    /// Interrupts waits that are to end, and closes connections whose parameters are overdue.
    ///
    /// The timeout of a single read does not limit a peer that sends a byte now and then.
    private func watch() {
        let interval = settings.parametersTimeout / 4
        var next = Deadline.after(interval)
        while true {
            let news: Bool? = watched.wait(until: next) {
                $0.isEnded || !$0.released.isEmpty ? $0.isEnded : nil
            }
            if news == true { return }
            if next.hasPassed {
                for connection in pool.update({ $0.overdue() }) { connection.cut() }
                for connection in kept.update({ $0.overdue() }) { connection.close() }
                // The memory of so many requests is scattered over the heap, so later requests could not reuse it well.
                if pool.update({ $0.busyTimeHasPassed() }) { Thread.releaseHeap() }
                next = .after(interval)
            }
            guard let due = watched.update({ $0.released.first?.at }) else { continue }
            let _: Void? = watched.wait(until: due) { _ in nil }
            let connection = watched.update { $0.released.removeFirst().connection }
            connection.interrupt()
        }
    }
}

// MARK: One request

extension FastCGIServer {
    private func serve(
        _ connection: Connection,
        _ request: borrowing FastCGIRequest,
        isLast: Bool,
        since ended: UInt64
    ) -> FastCGIExchange.End? {
        connection.setReceiveTimeout(settings.parametersTimeout)
        connection.setSendTimeout(settings.stallTimeout)
        guard let exchange = exchange(on: connection, request, since: ended) else {
            report(.noRequest)
            return nil
        }
        respond(exchange, isLast)
        let end = exchange.end(
            mayBeKept: kept.update { !$0.isEnded },
            lingerIdle: settings.lingerIdle,
            lingerTotal: settings.lingerTotal
        )
        if end == .incomplete { report(.incompleteResponse) }
        return end
    }

    /// Receives the beginning of a request.
    ///
    /// Returns nil if no valid beginning arrives.
    ///
    /// Not inlined, so that its stack space is free while the request waits for content.
    @inline(never)
    private func exchange(
        on connection: Connection,
        _ request: borrowing FastCGIRequest,
        since ended: UInt64
    ) -> FastCGIExchange? {
        var reader = RecordReader(connection)
        var parameters = RequestParameters(limits: settings.limits)
        guard var beginning = reader.receiveBeginning(),
            take(&parameters, of: &beginning, request, since: ended)
        else { return nil }
        pool.update { $0.parametersArrived(connection) }
        let (head, context) = parameters.read()
        return FastCGIExchange(
            head,
            context,
            of: beginning,
            reader: reader,
            stallTimeout: settings.stallTimeout,
            interrupt: { self.release(connection) }
        )
    }

    /// Parses the parameters of a request.
    ///
    /// If no descriptor is free, retries for up to `parametersTimeout`.
    private func take(
        _ parameters: inout RequestParameters,
        of beginning: inout RequestBeginning,
        _ request: borrowing FastCGIRequest,
        since ended: UInt64
    ) -> Bool {
        let deadline = Deadline.after(settings.parametersTimeout)
        var ended = ended
        while true {
            do throws(SystemError) {
                return try parameters.take(&beginning, takenApartBy: request)
            } catch {
                report(.acceptFailed(error))
                if deadline.hasPassed { return false }
                waitForRoom(since: ended)
                ended = pool.update { $0.ended }
            }
        }
    }
}
