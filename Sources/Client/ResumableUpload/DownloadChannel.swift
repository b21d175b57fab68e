// The bytes of a download between its thread and the task that reads its body.
//
// The invariant: bytes are given once and in order; at most one reader waits; and no more than `capacity` bytes and one
// piece wait for the reader.

import SpoolgatePosix

/// What of a download was not read yet.
final class DownloadChannel: Sendable {
    private struct State {
        var pieces: [[UInt8]] = []
        /// Those before it were given.
        var first = 0
        /// Bytes that wait for the reader.
        var waiting = 0
        /// Offset of the next byte for the reader.
        var given: Int64 = 0
        var isTaken = false
        var isClosed = false
        var end: Result<Void, any Error>?
        var reader: CheckedContinuation<[UInt8]?, any Error>?
        var answer: Transfer.Answer?

        /// The next piece, or the end; nil: there is neither yet.
        mutating func next() -> Result<[UInt8]?, any Error>? {
            if first < pieces.count {
                let piece = pieces[first]
                pieces[first] = []
                first += 1
                if first == pieces.count { (pieces, first) = ([], 0) }
                waiting -= piece.count
                given += Int64(piece.count)
                return .success(piece)
            }
            guard let end else { return nil }
            // An error is thrown once.
            self.end = .success(())
            return end.map { nil }
        }
    }

    /// Most bytes that wait for the reader before the download does.
    static let capacity = 1 << 20
    /// How long the download waits before it looks whether it was stopped.
    private static let look = Duration.milliseconds(200)

    private let state = Monitor(State())

    /// The head of the response that the bytes are of; nil before the first.
    var answer: Transfer.Answer? { state.updateQuietly(\.answer) }

    /// Offset of the next byte for the reader: where another download can go on.
    var given: Int64 { state.updateQuietly(\.given) }

    // MARK: The download's side

    /// Says at which offset the bytes begin.
    func begin(at offset: Int64) { state.updateQuietly { $0.given = offset } }

    /// Says what the bytes are of that come from now on.
    func note(_ answer: Transfer.Answer) { state.updateQuietly { $0.answer = answer } }

    /// Adds bytes, and waits while there is no room; false if the reader wants no more.
    func add(_ bytes: [UInt8], isStopped: () -> Bool) -> Bool {
        while true {
            let isClosed = state.wait(until: .after(Self.look), isQuiet: true) { state in
                state.isClosed ? true : state.waiting < Self.capacity ? false : nil
            }
            if isClosed == true || isStopped() { return false }
            guard isClosed == false else { continue }
            break
        }
        let (reader, isClosed) = state.updateQuietly { state in
            guard !state.isClosed else {
                return (nil as CheckedContinuation<[UInt8]?, any Error>?, true)
            }
            defer { state.reader = nil }
            if state.reader == nil {
                state.pieces.append(bytes)
                state.waiting += bytes.count
            } else {
                state.given += Int64(bytes.count)
            }
            return (state.reader, false)
        }
        reader?.resume(returning: bytes)
        return !isClosed
    }

    /// Says that there is no more, and why.
    func end(_ result: Result<Void, any Error>) {
        let reader = state.update { state in
            defer { state.reader = nil }
            state.end = result
            // One that waits has had all pieces.
            if state.reader != nil { state.end = .success(()) }
            return state.reader
        }
        reader?.resume(with: result.map { nil })
    }

    // MARK: The reader's side

    /// Makes the caller the one who reads; false if there was one.
    func take() -> Bool {
        state.updateQuietly { state in
            defer { state.isTaken = true }
            return !state.isTaken
        }
    }

    /// The next bytes, once there are any; nil at the end.
    ///
    /// - Throws: what the download ended with, after its last bytes; `CancellationError` if `close` was called, or a second
    ///   task reads.
    func next() async throws -> [UInt8]? {
        try await withCheckedThrowingContinuation { continuation in
            let result = state.update { state -> Result<[UInt8]?, any Error>? in
                if state.isClosed || state.reader != nil { return .failure(CancellationError()) }
                if let next = state.next() { return next }
                state.reader = continuation
                return nil
            }
            if let result { continuation.resume(with: result) }
        }
    }

    /// Wants no more; one that waits is told.
    func close() {
        let reader = state.update { state in
            defer { state.reader = nil }
            state.isClosed = true
            return state.reader
        }
        reader?.resume(throwing: CancellationError())
    }
}
