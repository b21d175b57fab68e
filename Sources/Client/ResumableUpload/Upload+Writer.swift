// A body that a program writes, piece by piece, while it is sent.
//
// A buffer between writer and upload lets small writes proceed without a change of threads. The invariant: each waiting
// writer or reader is woken once, even if the other end disappears.

import SpoolgatePosix

extension Upload {
    /// Writes the body of an upload.
    ///
    /// ```swift
    /// let (body, writer) = Upload.Body.makeStream()
    /// async let answer = Upload(body, to: url).run()
    /// for try await line in lines { try await writer.write(line.utf8) }
    /// writer.finish()
    /// print(try await answer.status)
    /// ```
    ///
    /// Any number of tasks may write; the pieces of each task are sent in order. If a writer is released without
    /// `finish`, the upload ends with an error, so that an incomplete body is never accepted.
    public final class Writer: Sendable {
        private let channel: PieceChannel

        init(_ channel: PieceChannel) { self.channel = channel }

        deinit { channel.fail("its writer was released without finish()") }

        /// Writes bytes, and waits while 64 KiB of earlier bytes have no space in the upload's window.
        ///
        /// - Parameter bytes: any number of bytes.
        /// - Throws: `CancellationError` if the task was cancelled, in which case no bytes are written; `TransferError`
        ///   of kind `.closed` if the run of the upload has ended or the body was finished.
        public func write(_ bytes: some Collection<UInt8>) async throws {
            guard !bytes.isEmpty else { return }
            try await channel.write(Array(bytes))
        }

        /// Marks the body as complete.
        public func finish() { channel.finish() }

        /// Ends the upload with an error of kind `.unreadable` that names `error`.
        public func fail(_ error: any Error) { channel.fail("\(error)") }
    }
}

/// The bytes between the writers of a body and its upload.
final class PieceChannel: Sendable {
    private enum Outcome {
        case taken, cancelled, closed
    }

    private struct Pending {
        var number: UInt64
        var piece: [UInt8]
        var writer: CheckedContinuation<Outcome, Never>
    }

    private struct State {
        var next: UInt64 = 0
        /// Written bytes that the upload has not yet read.
        var buffer: [UInt8] = []
        var pending: [Pending] = []
        /// Writes that were cancelled before they began to wait.
        var cancelled: Set<UInt64> = []
        var reader: CheckedContinuation<Void, Never>?
        var isFinished = false
        var failure: String?
        var isClosed = false
        var isOpened = false

        var takesNothing: Bool { isClosed || isFinished || failure != nil }
    }

    /// The error for an incomplete body.
    struct Broken: Error, CustomStringConvertible {
        var description: String
    }

    /// The size at which the next write waits.
    private static let limit = 1 << 16

    private let state = Monitor(State())

    // MARK: The writers' side

    /// Adds a piece, waiting while the buffer is full.
    func write(_ piece: [UInt8]) async throws {
        let (outcome, number, reader) = state.updateQuietly { state in
            defer { state.next += 1 }
            return (Self.admit(piece, to: &state), state.next, Self.reader(of: &state))
        }
        reader?.resume()
        if let outcome { return try Self.check(outcome) }
        let late = await waitForRoom(piece, number)
        // A late cancellation leaves its number behind.
        state.updateQuietly { _ = $0.cancelled.remove(number) }
        try Self.check(late)
    }

    private static func check(_ outcome: Outcome) throws {
        switch outcome {
        case .taken: return
        case .cancelled: throw CancellationError()
        case .closed:
            throw TransferError(
                .closed,
                "the writer is closed: the run of the upload has ended, or the body was finished"
            )
        }
    }

    /// Returns nil if the piece must wait because there is no space or another write is waiting.
    private static func admit(_ piece: [UInt8], to state: inout State) -> Outcome? {
        if state.takesNothing { return .closed }
        guard state.buffer.count < limit, state.pending.isEmpty else { return nil }
        state.buffer += piece
        return .taken
    }

    /// Takes the waiting reader, to wake it, if there are bytes or an end for it.
    private static func reader(of state: inout State) -> CheckedContinuation<Void, Never>? {
        guard !state.buffer.isEmpty || state.takesNothing else { return nil }
        defer { state.reader = nil }
        return state.reader
    }

    private func waitForRoom(_ piece: [UInt8], _ number: UInt64) async -> Outcome {
        await withTaskCancellationHandler {
            await withCheckedContinuation { writer in
                let (outcome, reader) = state.updateQuietly { state in
                    let isCancelled = state.cancelled.remove(number) != nil
                    let outcome = isCancelled ? .cancelled : Self.admit(piece, to: &state)
                    if outcome == nil {
                        state.pending.append(Pending(number: number, piece: piece, writer: writer))
                    }
                    return (outcome, Self.reader(of: &state))
                }
                reader?.resume()
                if let outcome { writer.resume(returning: outcome) }
            }
        } onCancel: {
            cancel(number)
        }
    }

    private func cancel(_ number: UInt64) {
        let writer = state.updateQuietly { state -> CheckedContinuation<Outcome, Never>? in
            guard let index = state.pending.firstIndex(where: { $0.number == number }) else {
                state.cancelled.insert(number)
                return nil
            }
            return state.pending.remove(at: index).writer
        }
        writer?.resume(returning: .cancelled)
    }

    func finish() { end { $0.isFinished = true } }

    /// Ends the body with an error; has no effect after `finish`.
    func fail(_ reason: String) {
        end { if !$0.isFinished, $0.failure == nil { $0.failure = reason } }
    }

    private func end(_ change: (inout State) -> Void) {
        let reader = state.updateQuietly { state in
            change(&state)
            return Self.reader(of: &state)
        }
        reader?.resume()
    }

    // MARK: The upload's side

    /// Passes written bytes to `add` until it returns false.
    func feed(_ add: @Sendable ([UInt8]) async -> Bool) async throws {
        let isFirst = state.updateQuietly { state in
            defer { state.isOpened = true }
            return !state.isOpened
        }
        guard isFirst else {
            throw Broken(
                description: "its content was sent by an earlier run, and is not kept"
            )
        }
        while let bytes = try await next() {
            guard await add(bytes) else { return }
        }
    }

    /// Waits for written bytes and returns them; nil at the end.
    private func next() async throws -> [UInt8]? {
        await withCheckedContinuation { reader in
            let isThere = state.updateQuietly { state in
                if !state.buffer.isEmpty || state.takesNothing { return true }
                state.reader = reader
                return false
            }
            if isThere { reader.resume() }
        }
        let (bytes, failure, writers) = state.updateQuietly { state in
            let bytes = state.buffer
            state.buffer = []
            var writers: [CheckedContinuation<Outcome, Never>] = []
            while state.buffer.count < Self.limit, !state.pending.isEmpty {
                let pending = state.pending.removeFirst()
                state.buffer += pending.piece
                writers.append(pending.writer)
            }
            return (bytes, state.failure, writers)
        }
        for writer in writers { writer.resume(returning: .taken) }
        if bytes.isEmpty, let failure { throw Broken(description: failure) }
        return bytes.isEmpty ? nil : bytes
    }

    /// Ends the reading; later writes throw.
    func close() {
        let (reader, writers) = state.updateQuietly { state in
            state.isClosed = true
            state.buffer = []
            defer { state.pending = [] }
            return (Self.reader(of: &state), state.pending.map(\.writer))
        }
        reader?.resume()
        for writer in writers { writer.resume(returning: .closed) }
    }
}
