// A body that a program writes, piece by piece, while it is sent.
//
// Two ends of one channel without memory of its own: a write ends when the upload's window takes the piece. The
// invariant: whoever writes or reads is woken once, also if the other end goes away.

import SpoolgatePosix

extension Upload {
    /// Where a program writes the body of an upload, by and by.
    ///
    /// ```swift
    /// let (body, writer) = Upload.Body.makeStream()
    /// async let answer = Upload(body, to: url).run()
    /// for try await line in lines { try await writer.write(line.utf8) }
    /// writer.finish()
    /// print(try await answer.status)
    /// ```
    ///
    /// Any number of tasks may write; the pieces of each are sent in its order. A writer that is let go without `finish`
    /// ends the upload with an error, so that half of a body is never taken for a whole one.
    public final class Writer: Sendable {
        private let channel: PieceChannel

        init(_ channel: PieceChannel) { self.channel = channel }

        deinit { channel.fail("its writer was let go without finish()") }

        /// Writes bytes, and waits until the upload has room for them; until it runs, if it does not yet.
        ///
        /// - Parameter bytes: any number; in memory twice while they wait.
        /// - Throws: `CancellationError` if the task was cancelled, and then none of the bytes were written; `TransferError`
        ///   of kind `closed` if the run of the upload has ended or the body was finished.
        public func write(_ bytes: some Collection<UInt8>) async throws {
            guard !bytes.isEmpty else { return }
            try await channel.write(Array(bytes))
        }

        /// Says that the body is whole.
        public func finish() { channel.finish() }

        /// Says that the body will not be whole: the upload ends with an error of kind `unreadable` that names `error`.
        public func fail(_ error: any Error) { channel.fail("\(error)") }
    }
}

/// Pieces of a body between those who write them and the one upload that takes them.
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
        var pending: [Pending] = []
        /// Writes that were cancelled before they waited.
        var cancelled: Set<UInt64> = []
        var reader: CheckedContinuation<[UInt8]?, Never>?
        var isFinished = false
        var failure: String?
        var isClosed = false
        var isOpened = false
    }

    /// What a piece cannot be had for.
    struct Broken: Error, CustomStringConvertible {
        var description: String
    }

    private let state = Monitor(State())

    // MARK: The writers' side

    /// Waits until the reader has the piece.
    func write(_ piece: [UInt8]) async throws {
        let number = state.updateQuietly { state in
            defer { state.next += 1 }
            return state.next
        }
        let outcome = await withTaskCancellationHandler {
            await withCheckedContinuation { wait(piece, number, $0) }
        } onCancel: {
            cancel(number)
        }
        switch outcome {
        case .taken: return
        case .cancelled: throw CancellationError()
        case .closed:
            throw TransferError(
                .closed,
                "nobody takes what is written: the run of the upload has ended, or the body was finished"
            )
        }
    }

    private func wait(
        _ piece: [UInt8],
        _ number: UInt64,
        _ writer: CheckedContinuation<Outcome, Never>
    ) {
        let (outcome, reader) = state.updateQuietly {
            state -> (Outcome?, CheckedContinuation<[UInt8]?, Never>?) in
            if state.cancelled.remove(number) != nil { return (.cancelled, nil) }
            if state.isClosed || state.isFinished || state.failure != nil { return (.closed, nil) }
            if let reader = state.reader {
                state.reader = nil
                return (.taken, reader)
            }
            state.pending.append(Pending(number: number, piece: piece, writer: writer))
            return (nil, nil)
        }
        reader?.resume(returning: piece)
        if let outcome { writer.resume(returning: outcome) }
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

    /// Says that no piece follows those that wait.
    func finish() { end { $0.isFinished = true } }

    /// Says that what was written is not all; nothing after `finish`.
    func fail(_ reason: String) {
        end { if !$0.isFinished, $0.failure == nil { $0.failure = reason } }
    }

    private func end(_ change: (inout State) -> Void) {
        let reader = state.updateQuietly { state in
            change(&state)
            defer { state.reader = nil }
            return state.reader
        }
        reader?.resume(returning: nil)
    }

    // MARK: The upload's side

    /// Gives each piece to `add`, until that wants no more.
    func feed(_ add: @Sendable ([UInt8]) async -> Bool) async throws {
        let isFirst = state.updateQuietly { state in
            defer { state.isOpened = true }
            return !state.isOpened
        }
        guard isFirst else {
            throw Broken(
                description: "what was written to it went to an earlier run, and is not kept"
            )
        }
        while let piece = try await next() {
            guard await add(piece) else { return }
        }
    }

    private func next() async throws -> [UInt8]? {
        let piece = await withCheckedContinuation { reader in
            let (piece, writer, isOver) = state.updateQuietly { state in
                guard !state.pending.isEmpty else {
                    let isOver = state.isClosed || state.isFinished || state.failure != nil
                    if !isOver { state.reader = reader }
                    return ([UInt8]?.none, CheckedContinuation<Outcome, Never>?.none, isOver)
                }
                let first = state.pending.removeFirst()
                return (first.piece, first.writer, true)
            }
            writer?.resume(returning: .taken)
            if isOver { reader.resume(returning: piece) }
        }
        if piece == nil, let failure = state.updateQuietly(\.failure) {
            throw Broken(description: failure)
        }
        return piece
    }

    /// Says that nobody takes pieces any more.
    func close() {
        let (reader, writers) = state.updateQuietly { state in
            state.isClosed = true
            defer { (state.reader, state.pending) = (nil, []) }
            return (state.reader, state.pending.map(\.writer))
        }
        reader?.resume(returning: nil)
        for writer in writers { writer.resume(returning: .closed) }
    }
}
