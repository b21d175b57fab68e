// The steps of a client, also after a fault.

import HTTPTypes
import SpoolgateUploadProtocol

extension UploadClient {
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

    /// Sends all content, like a client without the protocol.
    @discardableResult
    func send(on daemon: Daemon) throws -> Int {
        isOrdinary = true
        return try serve(exchange(.ordinary, on: daemon), by: daemon)
    }

    /// Stops the scenario if the response has no offset.
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

    @discardableResult
    func cancel(on daemon: Daemon) throws -> Int {
        isGivenUp = true
        return try serve(exchange(.cancellation, on: daemon), by: daemon)
    }

    /// Follows the protocol until a final response or an unknown outcome; throws `Stopped` if the daemon crashes.
    ///
    /// Returns whether the upload ended; if not, `statuses` has the responses. `mayBeGone` allows that an upload
    /// without a promise is gone.
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
