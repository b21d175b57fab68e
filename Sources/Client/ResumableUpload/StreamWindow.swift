// The unacknowledged bytes of a stream, in memory of a fixed size.
//
// A producer adds bytes to the end, and waits while the window is full. The upload reads at any offset in the window,
// and releases acknowledged bytes. The invariant: the window has the bytes from `start` up to `end`.

import Glibc
import SpoolgatePosix

/// A ring buffer; bytes are copied outside the lock, because only the producer writes, after the end, and only the
/// upload reads and releases.
final class StreamWindow: Sendable {
    private struct State {
        var start: Int64 = 0
        var end: Int64 = 0
        /// Bytes before this offset are dropped on arrival.
        var wanted: Int64 = 0
        /// The upload is woken when the end reaches this offset.
        var awaited: Int64 = 0
        var isEnded = false
        var isClosed = false
        var failure: String?
        var waiting: CheckedContinuation<Void, Never>?
    }

    struct Ready {
        /// The offset after the last available byte.
        var end: Int64
        /// Whether the stream ends at `end`.
        var isEnded: Bool
        var isFull: Bool
        var failure: String?
    }

    private nonisolated(unsafe) let memory: UnsafeMutableRawBufferPointer
    private let state = Monitor(State())

    /// Creates a window of `capacity` bytes, at least 64 KiB.
    init(capacity: Int) {
        memory = .allocate(byteCount: max(capacity, 1 << 16), alignment: 4096)
    }

    deinit { memory.deallocate() }

    var capacity: Int64 { Int64(memory.count) }

    // MARK: The producer's side

    /// Waits while the window is full; returns false if it was closed.
    func add(_ bytes: [UInt8]) async -> Bool {
        var added = 0
        while !isClosed {
            if added == bytes.count { return true }
            let count = put { room in
                let count = min(room.count, bytes.count - added)
                bytes.withUnsafeBytes {
                    room.copyMemory(from: .init(rebasing: $0[added..<(added + count)]))
                }
                return count
            }
            added += count
            if count == 0 { await waitForRoom() }
        }
        return false
    }

    private func waitForRoom() async {
        await withCheckedContinuation { continuation in
            let isFree = state.updateQuietly { state in
                if room(state) > 0 || state.isClosed { return true }
                state.waiting = continuation
                return false
            }
            if isFree { continuation.resume() }
        }
    }

    /// Waits for space; returns false at `deadline`, or if the window was closed.
    func waitForRoom(until deadline: Deadline) -> Bool {
        state.wait(until: deadline, isQuiet: true) {
            $0.isClosed ? false : room($0) > 0 ? true : nil
        } ?? false
    }

    /// Lets `fill` write into free memory, and returns the number of bytes written; 0 if the window is full.
    func put(_ fill: (UnsafeMutableRawBufferPointer) -> Int) -> Int {
        let (end, maximum) = state.updateQuietly { ($0.end, room($0)) }
        let place = Int(end % capacity)
        let free = memory[place..<min(memory.count, place + maximum)]
        let count = free.isEmpty ? 0 : fill(.init(rebasing: free))
        guard count > 0 else { return 0 }
        let isAwaited = state.updateQuietly { state in
            state.end += Int64(count)
            // An earlier process has sent these bytes.
            state.start = max(state.start, min(state.wanted, state.end))
            return state.end >= state.awaited
        }
        if isAwaited { state.update { _ in } }
        return count
    }

    func end(_ failure: String? = nil) {
        state.update {
            $0.isEnded = true
            $0.failure = failure
        }
    }

    var isClosed: Bool { state.updateQuietly(\.isClosed) }

    private func room(_ state: State) -> Int { memory.count - Int(state.end - state.start) }

    // MARK: The upload's side

    /// Returns false if the bytes from `offset` on were released.
    func canGive(from offset: Int64) -> Bool {
        state.updateQuietly { offset >= max($0.start, $0.wanted) }
    }

    /// Waits for `count` bytes from `offset` on, the end or a full window; at `deadline`, returns the present state.
    func ready(from offset: Int64, count: Int64, until deadline: Deadline) -> Ready {
        let look: (State) -> Ready = { [self] state in
            Ready(
                end: state.end,
                isEnded: state.isEnded,
                isFull: room(state) == 0,
                failure: state.failure
            )
        }
        let awaited = offset + min(count, capacity)
        state.updateQuietly { $0.awaited = awaited }
        let whole = state.wait(until: deadline, isQuiet: true) { state -> Ready? in
            state.isEnded || state.end >= awaited || room(state) == 0 ? look(state) : nil
        }
        return whole ?? state.updateQuietly { look($0) }
    }

    /// Copies the bytes at `offset`.
    ///
    /// Returns false if some bytes are not in the window.
    func read(into buffer: UnsafeMutableRawBufferPointer, at offset: Int64) -> Bool {
        let (start, end) = state.updateQuietly { ($0.start, $0.end) }
        guard offset >= start, offset + Int64(buffer.count) <= end else { return false }
        let place = Int(offset % capacity)
        let first = min(buffer.count, memory.count - place)
        buffer.copyMemory(from: .init(rebasing: memory[place..<(place + first)]))
        UnsafeMutableRawBufferPointer(rebasing: buffer[first...])
            .copyMemory(from: .init(rebasing: memory[..<(buffer.count - first)]))
        return true
    }

    /// Releases the bytes before `offset`; bytes before it that arrive later are dropped.
    func release(upTo offset: Int64) {
        wake { state in
            state.wanted = max(state.wanted, offset)
            state.start = min(max(state.start, offset), state.end)
        }
    }

    func close() { wake { $0.isClosed = true } }

    private func wake(_ change: (inout State) -> Void) {
        let waiting = state.update { state in
            change(&state)
            defer { if room(state) > 0 || state.isClosed { state.waiting = nil } }
            return room(state) > 0 || state.isClosed ? state.waiting : nil
        }
        waiting?.resume()
    }
}

final class StreamContent: UploadContent {
    private let window: StreamWindow
    private let feed: StreamFeed
    private let stated: Int64?
    private var isFed = false
    private var ended: Int64?
    private var task: Task<Void, Never>?

    var length: Int64? { stated ?? ended }
    let fingerprint: String? = nil

    init(_ feed: StreamFeed, length: Int64?, window: Int) {
        self.feed = feed
        stated = length
        self.window = StreamWindow(capacity: window)
    }

    func canBeRead(from offset: Int64) -> Bool { window.canGive(from: offset) }

    func release(upTo offset: Int64) { window.release(upTo: offset) }

    func portion(
        from offset: Int64,
        limit: Int64?,
        isStopped: () -> Bool
    ) throws(ContentFault) -> Portion? {
        try begin()
        // Half of the window is sent while the other half fills.
        let maximum = min(
            limit ?? .max,
            window.capacity / 2,
            stated.map { max(0, $0 - offset) } ?? .max
        )
        var due: Deadline?
        while !isStopped() {
            let ready = window.ready(from: offset, count: maximum, until: .after(Self.look))
            try check(ready, offset)
            let count = min(ready.end - offset, maximum)
            let isWhole = ready.isEnded || count == maximum
            if count > 0, due == nil { due = .after(Self.patience) }
            guard isWhole || due?.hasPassed ?? false else { continue }
            let end = offset + count
            return Portion(count: count, isLast: ready.isEnded && end == ready.end || end == stated)
        }
        return nil
    }

    var capacity: Int64 { window.capacity }

    /// Waits for `count` bytes, at most half the window; returns true if they arrived and the end is still unknown.
    ///
    /// - Throws: `ContentFault` if the stream failed, or its length differs from the declared one.
    func goesOn(
        from offset: Int64,
        by count: Int64,
        isStopped: () -> Bool
    ) throws(ContentFault) -> Bool {
        try begin()
        while !isStopped() {
            let ready = window.ready(from: offset, count: count, until: .after(Self.look))
            try check(ready, offset)
            if ready.isEnded { return false }
            if ready.end - offset >= count { return true }
        }
        return false
    }

    struct Taken {
        var count: Int
        /// Whether the stream ends after these bytes.
        var isEnded: Bool
        /// Whether no more bytes can arrive before some are released.
        var isFull: Bool
    }

    /// Copies the available bytes from `offset` on; if there are none yet, waits up to `limit` for the first one.
    ///
    /// - Returns: the number of bytes, and the state of the stream.
    /// - Throws: `ContentFault` if the stream failed, or if its length differs from the declared one.
    func take(
        into buffer: UnsafeMutableRawBufferPointer,
        at offset: Int64,
        within limit: Duration
    ) throws(ContentFault) -> Taken {
        let ready = window.ready(from: offset, count: 1, until: .after(limit))
        try check(ready, offset)
        let count = Int(min(Int64(buffer.count), max(0, ready.end - offset)))
        if count > 0 { try read(into: .init(rebasing: buffer[..<count]), at: offset) }
        return Taken(
            count: count,
            isEnded: ready.isEnded && ready.end == offset + Int64(count),
            isFull: ready.isFull
        )
    }

    func read(
        into buffer: UnsafeMutableRawBufferPointer,
        at offset: Int64
    ) throws(ContentFault) {
        guard window.read(into: buffer, at: offset) else {
            throw ContentFault(
                kind: .gone,
                reason: "the stream's bytes from \(offset) on are no longer available"
            )
        }
    }

    func check() {}

    func close() {
        window.close()
        task?.cancel()
    }

    private static let look = Duration.milliseconds(200)
    /// How long bytes wait for further bytes before they are sent.
    private static let patience = Duration.seconds(1)

    private func check(_ ready: StreamWindow.Ready, _ offset: Int64) throws(ContentFault) {
        if let failure = ready.failure {
            throw ContentFault(kind: .unreadable, reason: "the stream failed: \(failure)")
        }
        if ready.isEnded { ended = ready.end }
        if ready.isEnded, ready.end < offset {
            throw ContentFault(
                kind: .changed,
                reason: "the stream ended after \(ready.end) bytes, but the server has \(offset); "
                    + "start again"
            )
        }
        guard let stated, ready.end > stated || (ready.isEnded && ready.end < stated) else {
            return
        }
        throw ContentFault(
            kind: .changed,
            reason: "the stream has \(ready.isEnded ? "" : "more than ")\(ready.end) bytes, but "
                + "\(stated) were announced; start again"
        )
    }

    private func begin() throws(ContentFault) {
        guard !isFed else { return }
        isFed = true
        let window = window
        switch feed {
        case .asynchronous(let feed):
            task = Task {
                do {
                    try await feed { await window.add($0) }
                    window.end()
                } catch {
                    window.end("\(error)")
                }
            }
        case .descriptor(let number, let isOwned):
            do throws(SystemError) {
                try Thread.start(name: "stream") {
                    Self.feed(window, from: number)
                    if isOwned { Glibc.close(number) }
                }
            } catch {
                throw ContentFault(kind: .unreadable, reason: "\(error)")
            }
        }
    }

    private static func feed(_ window: StreamWindow, from number: Int32) {
        Descriptor.widenPipe(number, to: maximum)
        while !window.isClosed {
            guard window.waitForRoom(until: .after(look)) else { continue }
            var entry = pollfd(fd: number, events: Int16(POLLIN), revents: 0)
            // The timeout lets the loop detect a closed window.
            guard poll(&entry, 1, 200) != 0 else { continue }
            var (count, error): (Int, Int32) = (0, 0)
            _ = window.put { room in
                count = Glibc.read(number, room.baseAddress, min(room.count, maximum))
                error = errno
                return count
            }
            if count == 0 { return window.end() }
            if count < 0, error != EINTR, error != EAGAIN {
                return window.end(
                    "\(SystemError(call: "read", subject: "descriptor \(number)", errno: error))"
                )
            }
        }
    }

    private static let maximum = 1 << 20
}
