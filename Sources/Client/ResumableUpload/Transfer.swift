// What uploads and downloads are to a program alike: one run at a time, a token, events.
//
// The work is a blocking run on one thread; `async` is only the surface. The invariant: one run at a time, and what
// `token` says is enough to go on.

import SpoolgatePosix

/// The part of an `Upload` and a `Download` that is the same for both.
final class Transfer<Token: Sendable & Equatable>: Sendable {
    typealias Event = TransferEvent<Token>

    let control = TransferControl()
    /// What happens, for one reader; the newest 256 are kept for it.
    let events: AsyncStream<Event>
    /// What the transfer is called in a sentence: `the upload to URL`.
    let name: String

    private let current: Monitor<Token?>
    private let onEvent: (@Sendable (Event) -> Void)?
    private let sink: AsyncStream<Event>.Continuation
    private let body: @Sendable (Transfer) throws(TransferError) -> Answer

    /// Makes a transfer.
    ///
    /// - Parameters:
    ///   - name: what it is called in a sentence.
    ///   - token: what it begins with.
    ///   - onEvent: told of what happens, on the transfer's thread.
    ///   - body: one run of it.
    init(
        _ name: String,
        _ token: Token?,
        _ onEvent: (@Sendable (Event) -> Void)?,
        _ body: @escaping @Sendable (Transfer) throws(TransferError) -> Answer
    ) {
        self.name = name
        self.onEvent = onEvent
        self.body = body
        current = Monitor(token)
        (events, sink) = AsyncStream.makeStream(bufferingPolicy: .bufferingNewest(256))
    }

    /// What it can be resumed with now; nil: nothing.
    var token: Token? { current.update { $0 } }

    /// Takes another token, or none.
    func set(_ token: Token?) { current.update { $0 = token } }

    /// Tells what happened.
    func tell(_ event: Event) {
        switch event {
        case .resumable(let token): set(token)
        case .begunAnew: set(nil)
        case .progress, .waiting: break
        }
        onEvent?(event)
        sink.yield(event)
    }

    /// Runs on a thread of its own; cancelling the task is as a pause.
    func run() async throws(TransferError) -> Answer {
        let result = await withTaskCancellationHandler {
            await TransferControl.onThread("transfer") { self.performed() }
        } onCancel: {
            control.ask(.pause)
        }
        return try result.get()
    }

    /// Runs on the calling thread, which it blocks.
    func perform() throws(TransferError) -> Answer { try performed().get() }

    /// Ends the run as soon as it can; the token.
    func pause() async -> Token? {
        control.ask(.pause)
        await control.ended()
        return token
    }

    private func performed() -> Result<Answer, TransferError> {
        let result = control.run { Result { () throws(TransferError) in try performOnce() } }
        return result ?? .failure(TransferError(.invalid, "\(name) runs already"))
    }

    private func performOnce() throws(TransferError) -> Answer {
        do throws(TransferError) {
            let answer = try body(self)
            set(nil)
            sink.finish()
            return answer
        } catch {
            // Of what was not right nothing is left to go on with.
            if error.kind == .corrupt { set(nil) }
            if !error.mayWorkLater { sink.finish() }
            throw error
        }
    }
}
