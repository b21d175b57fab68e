// What uploads and downloads are to a program alike: one run at a time, a token, events.
//
// The work is a blocking run on one thread; `async` is only the surface. The invariants: one run at a time, what `token`
// says is enough to go on, and each stream of events ends with a run.

import SpoolgateCurl
import SpoolgatePosix

/// The part of an `Upload` and a `Download` that is the same for both.
final class TransferHandle<Token: Sendable & Equatable>: Sendable {
    typealias Event = Transfer.Event<Token>

    private struct State {
        var token: Token?
        var readers: [AsyncStream<Event>.Continuation] = []
        /// Whether the last run ended for good.
        var isOver = false
    }

    let control = TransferControl()
    /// The idle connections that it takes and gives back.
    let connections: ConnectionPool
    /// The most content of one request that proxies take.
    let appendLimit: AppendLimit
    /// What the transfer is called in a sentence: `the upload to URL`.
    let name: String

    private let slots: TransferSlots?
    private let state: Monitor<State>
    private let onEvent: (@Sendable (Event) -> Void)?
    private let body: @Sendable (TransferHandle) throws(TransferError) -> Transfer.Answer

    /// Makes a transfer.
    ///
    /// - Parameters:
    ///   - name: what it is called in a sentence.
    ///   - token: what it begins with.
    ///   - session: whose connections and places it takes; nil: it has its own.
    ///   - onEvent: told of what happens, on the transfer's thread.
    ///   - body: one run of it.
    init(
        _ name: String,
        _ token: Token?,
        in session: TransferSession?,
        _ onEvent: (@Sendable (Event) -> Void)?,
        _ body: @escaping @Sendable (TransferHandle) throws(TransferError) -> Transfer.Answer
    ) {
        self.name = name
        self.onEvent = onEvent
        self.body = body
        connections = session?.connections ?? ConnectionPool()
        appendLimit = session?.appendLimit ?? AppendLimit()
        slots = session?.slots
        state = Monitor(State(token: token))
    }

    /// What it can be resumed with now; nil: nothing.
    var token: Token? { state.updateQuietly(\.token) }

    /// Takes another token, or none.
    func set(_ token: Token?) { state.updateQuietly { $0.token = token } }

    /// A stream of what happens from now on, which ends with the run under way, or with the next one; at once if the last
    /// run ended for good.
    var events: AsyncStream<Event> {
        let (stream, reader) = AsyncStream<Event>.makeStream(bufferingPolicy: .bufferingNewest(256))
        let isOver = state.updateQuietly { state in
            if !state.isOver { state.readers.append(reader) }
            return state.isOver
        }
        if isOver { reader.finish() }
        return stream
    }

    /// Tells what happened.
    func tell(_ event: Event) {
        let readers = state.updateQuietly { state in
            switch event {
            case .resumable(let token): state.token = token
            case .begunAnew: state.token = nil
            case .progress, .waiting: break
            }
            return state.readers
        }
        onEvent?(event)
        for reader in readers { reader.yield(event) }
    }

    /// Runs on a thread of its own; cancelling the task is as a pause.
    ///
    /// - Throws: `TransferError`; `CancellationError` if the task was cancelled before the end.
    func run() async throws -> Transfer.Answer {
        try Task.checkCancellation()
        guard control.begin() else { throw alreadyRunning }
        let result = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                enter { [self] hasPlace in
                    guard hasPlace else { return continuation.resume(returning: paused()) }
                    TransferThread.start("transfer") {
                        self.performed()
                    } end: { result in
                        self.leave(result)
                        continuation.resume(returning: result)
                    }
                }
            }
        } onCancel: {
            control.ask(.pause)
        }
        if case .failure(let error) = result, error.kind == .paused { try Task.checkCancellation() }
        return try result.get()
    }

    /// Runs on the calling thread, which it blocks.
    ///
    /// - Parameter isStopped: asked once when the run has begun, after which a wish counts: true ends it as a pause.
    /// - Returns: the final response.
    /// - Throws: why there is none.
    func perform(unless isStopped: () -> Bool = { false }) throws(TransferError) -> Transfer.Answer
    {
        guard control.begin() else { throw alreadyRunning }
        if isStopped() { control.ask(.pause) }
        let place = Monitor<Bool?>(nil)
        enter { hasPlace in place.update { $0 = hasPlace } }
        let hasPlace = place.wait(until: .never) { $0 } ?? false
        let result = hasPlace ? performed() : paused()
        if hasPlace { leave(result) }
        return try result.get()
    }

    /// Ends the run as soon as it can; the token.
    func pause() async -> Token? {
        control.ask(.pause)
        await control.ended()
        return token
    }

    /// Waits for a place in the session.
    private func enter(_ told: @escaping @Sendable (_ hasPlace: Bool) -> Void) {
        guard let slots else { return told(true) }
        let ticket = slots.enter(told)
        control.whenAsked { slots.withdraw(ticket) }
    }

    private func leave(_ result: Result<Transfer.Answer, TransferError>) {
        slots?.leave()
        end(result)
    }

    /// The end of a run that waited for a place.
    private func paused() -> Result<Transfer.Answer, TransferError> {
        let token = token as? Upload.Token
        let error =
            control.wish == .cancel
            ? TransferError(.cancelled, "\(name) was cancelled before it began", token: token)
            : TransferError(.paused, "\(name) was paused before it began", token: token)
        let result = Result<Transfer.Answer, TransferError>.failure(error)
        end(result)
        return result
    }

    private func end(_ result: Result<Transfer.Answer, TransferError>) {
        let readers = state.updateQuietly { state in
            if case .failure(let error) = result {
                state.isOver = !error.mayWorkLater
            } else {
                state.isOver = true
            }
            defer { state.readers = [] }
            return state.readers
        }
        control.end()
        for reader in readers { reader.finish() }
    }

    private func performed() -> Result<Transfer.Answer, TransferError> {
        let result = Result { () throws(TransferError) in try body(self) }
        switch result {
        case .success: set(nil)
        // Of what was not right nothing is left to go on with.
        case .failure(let error): if error.kind == .corrupt { set(nil) }
        }
        return result
    }

    private var alreadyRunning: TransferError {
        TransferError(.invalid, "\(name) is already running")
    }
}
