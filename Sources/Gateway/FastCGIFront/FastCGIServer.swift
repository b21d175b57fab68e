// The FastCGI front: threads that wait for connections, each for one request at a time.
//
// It knows nothing of uploads: every request goes to one closure, with the place there is for it.
// Invariants: some thread can always accept, so that nobody is left waiting before a full house; no peer holds a thread
// longer than the limits of `Settings` allow while nothing moves.

package import SpoolgateExchange
package import SpoolgatePosix

/// What happened in the front that an operator may want to read.
package enum FrontEvent: Sendable, Equatable {
    /// No connection could be accepted for want of descriptors or memory; it goes on by itself.
    case acceptFailed(SystemError)
    /// No thread could be started; fewer requests than allowed are served at a time.
    case threadFailed(SystemError)
    /// A peer connected and sent no valid request, or not in time.
    case noRequest
    /// The handler gave no answer, or less content than it announced.
    case incompleteAnswer
}

/// A FastCGI responder on one listener.
package final class FastCGIServer: Sendable {
    /// Sizes and limits.
    package struct Settings: Sendable {
        /// What its threads are called, at most 9 bytes.
        package var name = "fastcgi"
        /// Threads that wait for connections from the start, at least 1; after a busy time up to
        /// four times as many stay.
        package var minimumSpare = 16
        /// Threads at most, each with one request; connections beyond that wait to be accepted.
        ///
        /// Each costs about 50 KiB, and the descriptors of its request.
        package var maximum = 2000
        /// Connections that are kept for a web server's next request, at most; beyond that the oldest are let
        /// go.
        ///
        /// Each costs a descriptor and no thread.
        package var maximumKept = ThreadBudget.keptConnections
        /// How long a web server has to close a connection that was let go.
        package var letGoTimeout = Duration.seconds(2)
        /// Bytes of a thread's stack; only those touched cost memory.
        package var stackSize = 256 * 1024
        /// A request is given up when no byte moves for so long, in either direction.
        package var stallTimeout = Duration.seconds(90)
        /// A connection is given up when its parameters are not all here after so long.
        package var parametersTimeout = Duration.seconds(10)
        /// After an answer given before the content's end: how long the web server may be silent
        /// before the connection is closed on it.
        ///
        /// It normally closes within milliseconds; HAProxy, Apache with HTTP/2 and Caddy do not
        /// close at all.
        package var lingerIdle = Duration.milliseconds(200)
        /// The same, in all.
        package var lingerTotal = Duration.seconds(2)
        /// How much of a request head is taken.
        package var limits = RequestParameters.Limits()

        /// The defaults.
        package init() {}
    }

    private let settings: Settings
    private let listener: Listener
    private let pool: Monitor<ThreadPool>
    private let kept: Monitor<KeptConnections>
    private let ready: EventPoll
    private let watched = Monitor(Watched())
    private let report: @Sendable (FrontEvent) -> Void
    private let answer: @Sendable (any Exchange, Bool) -> Void

    /// What the watching thread looks after.
    private struct Watched {
        var isOver = false
        /// Connections that were asked to let go while they waited, and when that wait is ended.
        var released: [(connection: Connection, at: Deadline)] = []
    }

    /// Prepares a server; `start` begins.
    ///
    /// Signals must be blocked before (`Signals.block`). libfcgi is initialised here, and the signal
    /// handlers it installs are undone. Its two environment settings have no effect: they belong to
    /// its own accept and to its own draining close, which are not used.
    ///
    /// - Parameters:
    ///   - settings: sizes and limits.
    ///   - listener: where connections come from.
    ///   - report: told what an operator may want to read, from any thread; must not block long.
    ///   - answer: answers one request, on a thread of its own; everything must be done on return. It is
    ///     also told whether no other thread accepts: then it must return soon.
    /// - Throws: `SystemError` when libfcgi cannot be initialised, or the system has no room to wait for
    ///   connections.
    package init(
        settings: Settings,
        listener: consuming Listener,
        report: @escaping @Sendable (FrontEvent) -> Void,
        answer: @escaping @Sendable (_ exchange: any Exchange, _ isLast: Bool) -> Void
    ) throws(SystemError) {
        try FastCGIRequest.prepare()
        listener.setNoDelay()
        ready = try EventPoll()
        kept = Monitor(
            KeptConnections(most: settings.maximumKept, patience: settings.letGoTimeout)
        )
        self.settings = settings
        self.listener = listener
        self.report = report
        self.answer = answer
        pool = Monitor(
            ThreadPool(
                minimumSpare: settings.minimumSpare,
                maximum: settings.maximum
            )
        )
    }

    /// Connections being served now, threads there are, and connections that are kept for a next request.
    package var load: (active: Int, threads: Int, kept: Int) {
        let (active, threads) = pool.update { ($0.active, $0.threads) }
        return (active, threads, kept.update { $0.count })
    }

    /// Whether some thread takes up connections: it is asked to, and has `patience` for that.
    package func isAccepting(within patience: Duration) -> Bool {
        ready.isServed(within: patience)
    }

    /// Starts the threads; requests are served from now on.
    /// - Throws: `SystemError` when not even one thread that accepts can be started.
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

    /// Ends in good order: accepts no more, lets go of the connections that are kept, and waits until all
    /// requests are answered, also those whose content is still coming.
    ///
    /// Then the socket file is removed if it is ours.
    ///
    /// - Parameters:
    ///   - deadline: when to wait no longer.
    ///   - interrupt: asks requests that need not go on to let go; called at once and then several
    ///     times a second, since a request that has only just come may be one of them.
    /// - Returns: false if `deadline` came first; requests still at work then go on until the process
    ///   ends.
    package func drain(until deadline: Deadline, interrupt: () -> Void) -> Bool {
        listener.stop()
        kept.update { $0.end() }
        // nginx sends them with the connection; who has sent none by then has no request.
        let grace = Deadline.after(min(settings.parametersTimeout, .seconds(1)))
        let closing = Deadline.after(settings.letGoTimeout)
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
        // As long as a request is at work, its waits may have to be ended.
        if ended != nil { watched.update { $0.isOver = true } }
        listener.remove()
        return ended != nil || pool.update { $0.active } == 0
    }

    /// Whether no request is served and none can come.
    private var isIdle: Bool { pool.update { $0.active == 0 } && kept.update { $0.isEmpty } }

    /// Ends the threads that wait for something to serve, now and from now on.
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

    /// One thread's life.
    private func run() {
        let request = FastCGIRequest()
        while let connection = nextConnection() {
            let deadline = Deadline.after(settings.parametersTimeout)
            let (startsSuccessor, ended) = pool.update {
                $0.take(connection, parametersBy: deadline)
            }
            // The last one has to be back soon: nobody else accepts.
            let isLast = startsSuccessor && !startSuccessor()
            if serve(connection, request, isLast: isLast, since: ended) == .kept {
                keep(connection)
            }
            connection.close()
            guard pool.update({ $0.giveBack(connection) }) else { return }
        }
    }

    /// Starts the thread that accepts next.
    /// - Returns: false if there is none now that could: this one then has to be quick.
    private func startSuccessor() -> Bool {
        do throws(SystemError) {
            try startCountedThread()
            return true
        } catch {
            report(.threadFailed(error))
            return pool.update { $0.idle > 0 }
        }
    }

    /// The listener's token; those of connections are above it.
    private static let listening: UInt64 = 0

    /// Waits for a connection with something to read; nil when this thread has to end.
    private func nextConnection() -> Connection? {
        while !pool.update({ $0.isDraining }) {
            guard let event = ready.next() else { continue }
            if event.token == Self.listening {
                if let connection = accept() { return connection }
                continue
            }
            guard let connection = kept.update({ $0.take(event.token) }) else { continue }
            // What was sent before the end is served, as on a connection that is new.
            if !event.isHungUp || connection.readableBytes > 0 { return connection }
            connection.close()
        }
        pool.update { $0.idleThreadEnds() }
        return nil
    }

    /// Takes a connection that waits at the listener, and has the next thread told of the one after it.
    private func accept() -> Connection? {
        let ended = pool.update { $0.ended }
        let isEnding = kept.update { $0.isEnding }
        if isEnding, listener.isInherited { return nil }
        do throws(SystemError) {
            let connection = try listener.accept()
            // At the end those are served that waited already, and then nobody comes.
            if connection != nil || !isEnding { listen() }
            return connection
        } catch {
            report(.acceptFailed(error))
            waitForRoom(since: ended)
            listen()
            return nil
        }
    }

    /// Has one thread told of the next connection at the listener.
    private func listen() {
        do throws(SystemError) { try ready.watch(listener, as: Self.listening) } catch {
            report(.acceptFailed(error))
        }
    }

    /// Keeps a connection for the web server's next request.
    private func keep(_ connection: Connection) {
        guard let connection = connection.handedOn(),
            let token = kept.update({ $0.add(connection) })
        else { return }
        do throws(SystemError) { try ready.watch(connection, as: token) } catch {
            report(.acceptFailed(error))
            _ = kept.update { $0.take(token) }
        }
    }

    /// Waits after a failure for want of descriptors: room comes with the end of a connection, or
    /// from outside.
    private func waitForRoom(since ended: UInt64) {
        let _: Void? = pool.wait(until: .after(.milliseconds(500))) {
            $0.isDraining || $0.ended != ended ? () : nil
        }
    }

    /// Asks a connection to let go.
    ///
    /// One whose peer is sending notices by itself, and its answer gets through. Only where the peer
    /// stays silent its wait has to be ended, which a peer that then sends takes for an error
    /// (nginx says 502).
    private func release(_ connection: Connection) {
        guard connection.release() else { return }
        let due = Deadline.after(.milliseconds(100))
        watched.update { $0.released.append((connection, due)) }
    }

    /// Ends waits that are to end, and cuts connections whose parameters are overdue.
    ///
    /// The limit on one read alone would let a peer that sends a byte now and then hold a thread for
    /// ever.
    private func watch() {
        let interval = settings.parametersTimeout / 4
        var next = Deadline.after(interval)
        while true {
            let news: Bool? = watched.wait(until: next) {
                $0.isOver || !$0.released.isEmpty ? $0.isOver : nil
            }
            if news == true { return }
            if next.hasPassed {
                for connection in pool.update({ $0.overdue() }) { connection.cut() }
                for connection in kept.update({ $0.overdue() }) { connection.close() }
                // What so many requests held lies scattered in the heap, and the next ones would not
                // fit into it as it lies.
                if pool.update({ $0.busyTimeIsOver() }) { Thread.releaseHeap() }
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
        answer(exchange, isLast)
        let end = exchange.end(
            mayBeKept: kept.update { !$0.isOver },
            lingerIdle: settings.lingerIdle,
            lingerTotal: settings.lingerTotal
        )
        if end == .incomplete { report(.incompleteAnswer) }
        return end
    }

    /// Receives the beginning of a request; nil where there is none.
    ///
    /// By itself, so that what it takes of the stack is free while the request waits for its content.
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
            connection: connection,
            stallTimeout: settings.stallTimeout,
            interrupt: { self.release(connection) }
        )
    }

    /// Takes the parameters of a request; without a descriptor for them this tries again for as long as
    /// parameters may take.
    ///
    /// - Returns: false where there are none that can be taken.
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
