// The common part of uploads and downloads: runs, the token and events.
//
// A run blocks one thread; the `async` functions wait for that thread. The invariants: there is one run at a time,
// `token` is enough to resume, and each stream of events ends with a run.

import SpoolgateCurl
import SpoolgatePosix

final class TransferHandle<Token: Sendable & Equatable>: Sendable {
    typealias Event = Transfer.Event<Token>

    private struct State {
        var token: Token?
        var readers: [AsyncStream<Event>.Continuation] = []
        /// Whether the last run succeeded or failed permanently.
        var isEnded = false
    }

    let control = TransferControl()
    let connections: ConnectionPool
    let appendLimit: AppendLimit
    /// The name in a sentence: `the upload to URL`.
    let name: String

    private let slots: TransferSlots?
    private let state: Monitor<State>
    private let onEvent: (@Sendable (Event) -> Void)?
    private let body: @Sendable (TransferHandle) throws(TransferError) -> Transfer.Response

    /// Creates a transfer that resumes from `token`; nil begins a new one.
    ///
    /// `name` is part of sentences. `onEvent` is called on the transfer's thread; `body` performs one run.
    init(
        _ name: String,
        _ token: Token?,
        in session: TransferSession?,
        _ onEvent: (@Sendable (Event) -> Void)?,
        _ body: @escaping @Sendable (TransferHandle) throws(TransferError) -> Transfer.Response
    ) {
        self.name = name
        self.onEvent = onEvent
        self.body = body
        connections = session?.connections ?? ConnectionPool()
        appendLimit = session?.appendLimit ?? AppendLimit()
        slots = session?.slots
        state = Monitor(State(token: token))
    }

    var token: Token? { state.updateQuietly(\.token) }

    func set(_ token: Token?) { state.updateQuietly { $0.token = token } }

    /// A stream of the events from now on.
    ///
    /// The stream ends with the current run or the next one, or at once if the last run succeeded or failed
    /// permanently.
    var events: AsyncStream<Event> {
        let (stream, reader) = AsyncStream<Event>.makeStream(bufferingPolicy: .bufferingNewest(256))
        let isEnded = state.updateQuietly { state in
            if !state.isEnded { state.readers.append(reader) }
            return state.isEnded
        }
        if isEnded { reader.finish() }
        return stream
    }

    /// Reports an event to `onEvent` and all streams.
    func report(_ event: Event) {
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

    /// Runs on a thread of its own; cancelling the task pauses the run.
    func run() async throws -> Transfer.Response {
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
            control.request(.pause)
        }
        if case .failure(let error) = result, error.kind == .paused { try Task.checkCancellation() }
        return try result.get()
    }

    /// Runs on the calling thread.
    ///
    /// Calls `isStopped` once after the run has begun, and pauses the run if the result is true.
    func perform(unless isStopped: () -> Bool = { false }) throws(TransferError)
        -> Transfer.Response
    {
        guard control.begin() else { throw alreadyRunning }
        if isStopped() { control.request(.pause) }
        let place = Monitor<Bool?>(nil)
        enter { hasPlace in place.update { $0 = hasPlace } }
        let hasPlace = place.wait(until: .never) { $0 } ?? false
        let result = hasPlace ? performed() : paused()
        if hasPlace { leave(result) }
        return try result.get()
    }

    func pause() async -> Token? {
        control.request(.pause)
        await control.ended()
        return token
    }

    /// Requests a slot of the session.
    private func enter(_ notify: @escaping @Sendable (_ hasPlace: Bool) -> Void) {
        guard let slots else { return notify(true) }
        let ticket = slots.enter(notify)
        control.whenRequested { slots.withdraw(ticket) }
    }

    private func leave(_ result: Result<Transfer.Response, TransferError>) {
        slots?.leave()
        end(result)
    }

    /// Ends a run that was paused while waiting for a slot.
    private func paused() -> Result<Transfer.Response, TransferError> {
        let token = token as? Upload.Token
        let error =
            control.wish == .cancel
            ? TransferError(.cancelled, "\(name) was cancelled before it began", token: token)
            : TransferError(.paused, "\(name) was paused before it began", token: token)
        let result = Result<Transfer.Response, TransferError>.failure(error)
        end(result)
        return result
    }

    private func end(_ result: Result<Transfer.Response, TransferError>) {
        let readers = state.updateQuietly { state in
            if case .failure(let error) = result {
                state.isEnded = !error.mayWorkLater
            } else {
                state.isEnded = true
            }
            defer { state.readers = [] }
            return state.readers
        }
        control.end()
        for reader in readers { reader.finish() }
    }

    private func performed() -> Result<Transfer.Response, TransferError> {
        let result = Result { () throws(TransferError) in try body(self) }
        switch result {
        case .success: set(nil)
        // No corrupt content is kept, so there is none to resume.
        case .failure(let error): if error.kind == .corrupt { set(nil) }
        }
        return result
    }

    private var alreadyRunning: TransferError {
        TransferError(.invalid, "\(name) is already running")
    }
}
