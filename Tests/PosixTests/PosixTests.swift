// Buffers, monitors, clocks, threads, descriptors, locks and digests.

import Foundation
import SpoolgateCrypto
import SpoolgatePosix
import Synchronization
import Testing

private typealias Thread = SpoolgatePosix.Thread

@Suite("Posix")
struct PosixTests {
    @Test("an error names call, subject and the system's sentence")
    func systemError() {
        let error = SystemError(call: "openat", subject: "/x", errno: ENOSPC)
        #expect(error.description == "openat /x: No space left on device")
        #expect(error.isFull)
        #expect(SystemError(call: "a", subject: "b", errno: 9999).description.hasPrefix("a b: "))
    }

    @Test("a descriptor is closed when its value ends, and a released one is not")
    func descriptor() throws {
        // Checked at the other end: another test may reuse a closed descriptor.
        func pair() throws -> (end: Int32, other: Int32) {
            var ends: [Int32] = [-1, -1]
            let type = Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
            try #require(socketpair(AF_UNIX, type, 0, &ends) == 0)
            return (ends[1], ends[0])
        }
        func isClosed(_ other: Int32, within milliseconds: Int32) -> Bool {
            var seen = pollfd(fd: other, events: Int16(POLLIN), revents: 0)
            return poll(&seen, 1, milliseconds) == 1 && Int32(seen.revents) & Int32(POLLHUP) != 0
        }
        let first = try pair()
        defer { close(first.other) }
        do {
            let owned = Descriptor(owning: first.end)
            #expect(owned.number == first.end)
            #expect(!isClosed(first.other, within: 0))
        }
        #expect(isClosed(first.other, within: 300_000))
        let second = try pair()
        defer { close(second.other) }
        let released = Descriptor(owning: second.end).release()
        #expect(!isClosed(second.other, within: 0))
        try Descriptor(owning: released).close()
        #expect(isClosed(second.other, within: 300_000))
    }

    @Test("a connection is readable once data arrived or its peer has left, and not before")
    func readable() throws {
        var ends: [Int32] = [-1, -1]
        try #require(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends) == 0)
        let peer = Descriptor(owning: ends[1])
        let connection = Connection(Descriptor(owning: ends[0]))
        defer { connection.close() }
        #expect(!connection.isReadable(within: .milliseconds(1)))
        #expect(write(peer.number, "x", 1) == 1)
        #expect(connection.isReadable(within: .seconds(60)))
        var byte: UInt8 = 0
        #expect(read(connection.number, &byte, 1) == 1)
        #expect(!connection.isReadable(within: .milliseconds(1)))
        try peer.close()
        #expect(connection.isReadable(within: .seconds(60)))
    }

    @Test("a buffer holds the bytes filled in, and is empty and whole after release")
    func contentBuffer() throws {
        let buffer = try ContentBuffer(capacity: 3 * 4096 + 5)
        for round in 1...2 {
            while buffer.count < buffer.capacity {
                buffer.fill { free in
                    let count = min(free.count, 1000)
                    for index in 0..<count { free[index] = UInt8(truncatingIfNeeded: round) }
                    return count
                }
            }
            #expect(buffer.free == 0)
            buffer.fill { free in
                #expect(free.isEmpty)
                return 0
            }
            let isRight = buffer.withBytes { bytes in
                bytes.withUnsafeBytes { all in
                    all.count == buffer.capacity && all.allSatisfy { $0 == UInt8(round) }
                }
            }
            #expect(isRight)
            if round == 1 { buffer.releasePages() } else { buffer.removeAll() }
            #expect(buffer.count == 0)
        }
    }

    @Test("a buffer keeps the bytes filled in when it gives back the rest")
    func unusedPages() throws {
        let buffer = try ContentBuffer(capacity: 3 * 4096 + 5)
        for filled in [0, 1, 4096, 4097, 3 * 4096, buffer.capacity] {
            buffer.removeAll()
            buffer.fill { free in
                for index in free.indices { free[index] = 7 }
                return filled
            }
            buffer.releaseUnusedPages()
            #expect(buffer.count == filled)
            #expect(buffer.touched == filled)
            var copy = [UInt8](repeating: 0, count: buffer.capacity)
            let copied = copy.withUnsafeMutableBytes { buffer.copy(from: 0, to: $0) }
            #expect(copied == filled)
            #expect(copy == Array(repeating: 7, count: filled) + copy[filled...])
            // Released pages read as zeroes; pages with content stay.
            let kept = min(buffer.capacity, (filled + 4095) / 4096 * 4096)
            buffer.fill { free in
                #expect(free[(kept - filled)...].allSatisfy { $0 == 0 })
                return 0
            }
            let end = copy.withUnsafeMutableBytes { buffer.copy(from: filled, to: $0) }
            #expect(end == 0)
        }
    }

    @Test("a buffer without memory is an error")
    func noMemory() throws {
        #expect(throws: SystemError.self) { try ContentBuffer(capacity: 1 << 62) }
    }

    @Test("filling a buffer beyond its end traps")
    func overfill() async {
        await #expect(processExitsWith: .failure) {
            try ContentBuffer(capacity: 10).fill { $0.count + 1 }
        }
    }

    @Test("updates of a monitor exclude each other and wake waiting threads")
    func monitor() throws {
        let monitor = Monitor((count: 0, threads: 0))
        for number in 0..<8 {
            try Thread.start(name: "counter-\(number)") {
                for _ in 0..<1000 { monitor.update { $0.count += 1 } }
                monitor.update { $0.threads += 1 }
            }
        }
        let count = monitor.wait(until: .after(.seconds(300))) { $0.threads == 8 ? $0.count : nil }
        #expect(count == 8000)
    }

    @Test("a wait whose result changes the value wakes the others")
    func waitChanges() throws {
        let monitor = Monitor((tokens: 0, taken: 0))
        for number in 0..<4 {
            try Thread.start(name: "taker-\(number)") {
                let isTaken = monitor.wait(until: .after(.seconds(300))) { value -> Bool? in
                    guard value.tokens > 0 else { return nil }
                    value.tokens -= 1
                    value.taken += 1
                    return true
                }
                #expect(isTaken == true)
            }
        }
        monitor.update { $0.tokens = 4 }
        #expect(monitor.wait(until: .after(.seconds(300))) { $0.taken == 4 ? true : nil } == true)
    }

    @Test("a wait ends at its deadline, after one last look")
    func deadline() {
        let monitor = Monitor(0)
        let looks = Mutex(0)
        let start = ContinuousClock.now
        let result: Int? = monitor.wait(until: .after(.milliseconds(20))) { _ in
            looks.withLock { $0 += 1 }
            return nil
        }
        #expect(result == nil)
        #expect(ContinuousClock.now - start >= .milliseconds(20))
        #expect(looks.withLock { $0 } >= 2)
        #expect(monitor.wait(until: .after(.seconds(-5))) { _ in 7 } == 7)
    }

    @Test("an error in an update leaves the monitor usable")
    func throwingUpdate() {
        let monitor = Monitor(0)
        let error = SystemError(call: "a", subject: "b", errno: 1)
        #expect(throws: error) {
            try monitor.update { value throws(SystemError) in
                value = 1
                throw error
            }
        }
        #expect(monitor.update { $0 } == 1)
    }

    @Test(
        "a moment is formatted as in RFC 3339",
        arguments: [
            (0, "1970-01-01T00:00:00Z"), (1_795_264_260, "2026-11-21T12:31:00Z"),
            (951_827_696, "2000-02-29T12:34:56Z"), (-1, "1969-12-31T23:59:59Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
        ] as [(Int64, String)]
    )
    func wallTime(seconds: Int64, text: String) {
        #expect(WallTime(seconds: seconds).description == text)
    }

    @Test("deadlines pass in their order, and the longest never")
    func deadlines() {
        #expect(Deadline.after(.zero).hasPassed)
        #expect(Deadline.after(.seconds(-1)).hasPassed)
        #expect(!Deadline.after(.seconds(3600)).hasPassed)
        #expect(!Deadline.after(.seconds(Int64.max)).hasPassed)
        #expect(Deadline.after(.seconds(3600)).remaining > .seconds(3500))
        #expect(Deadline.after(.zero).remaining == .zero)
        #expect(Duration.nanoseconds(2_999_999).wholeMilliseconds == 2)
        #expect(Duration.seconds(Int64.max).wholeMilliseconds == .max / 2)
    }

    @Test("a thread has its name, cut to the kernel's limit")
    func thread() throws {
        let seen = Monitor<String?>(nil)
        try Thread.start(name: "a-name-of-more-than-15-bytes", stackSize: 300_001) {
            let name = try? String(contentsOfFile: "/proc/thread-self/comm", encoding: .utf8)
            seen.update { $0 = name ?? "" }
        }
        #expect(seen.wait(until: .after(.seconds(300))) { $0 } == "a-name-of-more-\n")
    }

    @Test("a stack too small to run on is refused")
    func smallStack() {
        #expect(throws: SystemError.self) { try Thread.start(name: "small", stackSize: 1) {} }
    }

    @Test("a lock excludes another opening of the file until it is closed")
    func fileLock() throws {
        let path = NSTemporaryDirectory() + "/lock-\(UInt64.random(in: 0...(.max)))"
        try Data().write(to: URL(filePath: path))
        defer { unlink(path) }
        let other = Descriptor(owning: open(path, O_RDWR))
        do {
            let first = Descriptor(owning: open(path, O_RDWR))
            #expect(try first.tryLock(subject: path))
            #expect(try !other.tryLock(subject: path))
            #expect(try other.isLockedElsewhere(subject: path))
            #expect(try !first.isLockedElsewhere(subject: path))
        }
        #expect(try !other.isLockedElsewhere(subject: path))
        try other.lock(subject: path)
        #expect(try other.tryLock(subject: path))
    }

    @Test("a lock held through another opening is waited for")
    func awaitedLock() throws {
        let path = NSTemporaryDirectory() + "/lock-\(UInt64.random(in: 0...(.max)))"
        try Data().write(to: URL(filePath: path))
        defer { unlink(path) }
        let holder = open(path, O_RDWR)
        let first = Descriptor(owning: holder)
        #expect(try first.tryLock(subject: path))
        let seen = Monitor((isAsking: false, isFree: false, wasFree: Bool?.none))
        try Thread.start(name: "waits") {
            let other = Descriptor(owning: open(path, O_RDWR))
            seen.update { $0.isAsking = true }
            let isLocked = (try? other.lock(subject: path)) != nil
            seen.update { $0.wasFree = isLocked && $0.isFree }
        }
        let asks = seen.wait(until: .after(.seconds(20))) { $0.isAsking ? true : nil }
        #expect(asks == true)
        seen.update { $0.isFree = true }
        close(first.release())
        #expect(seen.wait(until: .after(.seconds(20))) { $0.wasFree } == true)
    }

    @Test(
        "SHA-256 agrees with FIPS 180-4's examples",
        arguments: [
            ("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            ("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (
                "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
            ),
        ]
    )
    func sha256(text: String, digest: String) {
        let bytes = Array(text.utf8)
        let made = SHA256.digest(bytes.span.bytes).map { String(format: "%02x", $0) }.joined()
        #expect(made == digest)
    }

    @Test("random bits do not repeat")
    func randomBits() {
        #expect(Set((0..<1000).map { _ in RandomBits.next() }).count == 1000)
    }
}
