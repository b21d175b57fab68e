// What a client does: the steps of a scenario, and coming back after whatever happened.

import HTTPTypes
import SpoolgateUploadProtocol

extension UploadClient {
    /// Creates the upload with its first bytes.
    @discardableResult
    func create(
        upTo end: Int? = nil,
        complete: Bool = true,
        ends: ClientExchange.End = .proper,
        announced: Int? = nil,
        on daemon: Daemon
    ) throws -> Int {
        try serve(
            exchange(
                .creation,
                to: end ?? length,
                complete: complete,
                end: ends,
                announced: announced,
                on: daemon
            ),
            by: daemon
        )
    }

    /// Appends what follows `from`.
    @discardableResult
    func append(
        from: Int,
        upTo end: Int? = nil,
        complete: Bool = true,
        ends: ClientExchange.End = .proper,
        announced: Int? = nil,
        on daemon: Daemon
    ) throws -> Int {
        try serve(
            exchange(
                .append,
                from: from,
                to: end ?? length,
                complete: complete,
                end: ends,
                announced: announced,
                on: daemon
            ),
            by: daemon
        )
    }

    /// Sends all of it as a client does that knows nothing of the protocol.
    @discardableResult
    func send(on daemon: Daemon) throws -> Int {
        isOrdinary = true
        return try serve(exchange(.ordinary, on: daemon), by: daemon)
    }

    /// Asks for the offset; where it is not told, the scenario stops.
    @discardableResult
    func retrieve(on daemon: Daemon) throws -> Int {
        guard location != nil else { throw Stopped() }
        let request = exchange(.retrieval, on: daemon)
        let status = try serve(request, by: daemon)
        guard status == 204,
            let offset = request.final?.fields[.uploadOffset].flatMap({ Int($0) })
        else { throw Stopped() }
        return offset
    }

    /// Cancels the upload.
    @discardableResult
    func cancel(on daemon: Daemon) throws -> Int {
        isGivenUp = true
        return try serve(exchange(.cancellation, on: daemon), by: daemon)
    }

    /// Does what is left to do, as the protocol has it, until there is an end: the final response, or
    /// the word that nobody knows the outcome.
    ///
    /// - Parameters:
    ///   - daemon: reached, and in good order.
    ///   - mayBeGone: whether an upload of which nothing was promised may be gone.
    /// - Returns: whether there was an end; else `statuses` tell what came instead.
    /// - Throws: `Stopped` where the daemon dies.
    func comeBack(to daemon: Daemon, mayBeGone: Bool) throws -> Bool {
        for _ in 0..<8 {
            if hasEnded { return true }
            if isOrdinary {
                beginAgain()
                try send(on: daemon)
                continue
            }
            guard location != nil else {
                beginAgain()
                try create(on: daemon)
                continue
            }
            let request = exchange(.retrieval, on: daemon)
            switch try serve(request, by: daemon) {
            case 404:
                if told != nil || !mayBeGone { return false }
                location = nil
            case 204:
                let offset = request.final?.fields[.uploadOffset].flatMap { Int($0) }
                guard let offset, (0...length).contains(offset) else { return false }
                try append(from: offset, on: daemon)
            default: continue
            }
        }
        return hasEnded
    }

    private var hasEnded: Bool { hasFinal || isHeld || isAccepted || isRefused }
}
