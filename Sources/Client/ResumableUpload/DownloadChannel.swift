// The buffer between the thread of a download and the reader of its body.
//
// The invariant: bytes are passed on once and in order; at most one reader waits; the buffer has at most `capacity`
// bytes and one piece.

import SpoolgatePosix

final class DownloadChannel: Sendable {
    private struct State {
        var pieces: [[UInt8]] = []
        /// The index of the first unread piece.
        var first = 0
        var waiting = 0
        var given: Int64 = 0
        var isTaken = false
        var isClosed = false
        var end: Result<Void, any Error>?
        var reader: CheckedContinuation<[UInt8]?, any Error>?
        var response: Transfer.Response?

        /// Removes the next piece, or returns the end (a nil piece or an error); nil if the reader must wait.
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
            // An error is thrown only once.
            self.end = .success(())
            return end.map { nil }
        }
    }

    /// The number of unread bytes at which the download waits.
    static let capacity = 1 << 20
    private static let look = Duration.milliseconds(200)

    private let state = Monitor(State())

    /// The response whose content passes through the channel; nil before its first bytes.
    var response: Transfer.Response? { state.updateQuietly(\.response) }

    /// The offset of the next byte to give to the reader.
    var given: Int64 { state.updateQuietly(\.given) }

    // MARK: The download's side

    func begin(at offset: Int64) { state.updateQuietly { $0.given = offset } }

    func note(_ response: Transfer.Response) { state.updateQuietly { $0.response = response } }

    /// Adds bytes, waiting while the buffer is full; returns false after `close`, or if `isStopped` returned true.
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

    func end(_ result: Result<Void, any Error>) {
        let reader = state.update { state in
            defer { state.reader = nil }
            state.end = result
            // A waiting reader has received all pieces, and now receives the result.
            if state.reader != nil { state.end = .success(()) }
            return state.reader
        }
        reader?.resume(with: result.map { nil })
    }

    // MARK: The reader's side

    /// Claims the channel for its only reader; returns false if it was claimed before.
    func take() -> Bool {
        state.updateQuietly { state in
            defer { state.isTaken = true }
            return !state.isTaken
        }
    }

    /// Waits for the next bytes and returns them; nil at the end of the content.
    ///
    /// - Throws: the error of the download after its last bytes; `CancellationError` after `close`, or if another task
    ///   is waiting.
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

    /// Closes the channel; a waiting reader throws `CancellationError`.
    func close() {
        let reader = state.update { state in
            defer { state.reader = nil }
            state.isClosed = true
            return state.reader
        }
        reader?.resume(throwing: CancellationError())
    }
}
