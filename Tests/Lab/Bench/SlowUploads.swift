// Section E: many simultaneous slow uploads, with offset retrieval meanwhile.
//
// One thread feeds all uploads: every 20 ms it writes 1000 bytes to each upload of the next fiftieth, about 1 KB/s
// each. After the hold it sends the rest of every upload, whose response must be 201 with the whole length. A second
// thread retrieves an idle upload's offset 50 times a second.

import Glibc
import SpoolgateTestSupport

enum SlowUploads {
    static let openingsPerSecond = 1000

    static func rowName(_ count: Int) -> String {
        "\(count) slow uploads"
    }

    static func run(_ count: Int, _ options: Options, on stage: Stage) -> RowResult {
        var result = RowResult(name: rowName(count))
        do {
            guard let pid = stage.gatewayPID else { return result }
            let idle = ProcessStatus(pid).resident
            let uploads = try SlowClient(
                count,
                address: stage.localAddress,
                seconds: options.slowSeconds
            )
            try uploads.open()
            let prober = try Prober(stage.address)
            let cpu = processorSeconds(pid)
            let server = stage.serverSeconds
            let load = MachineLoad(stage)
            let start = now()
            var held = ProcessStatus(pid)
            while now() - start < options.slowSeconds {
                let second = now()
                while now() - second < 1 { try uploads.feed() }
                let status = ProcessStatus(pid)
                if status.resident > held.resident { held = status }
            }
            let seconds = now() - start
            let others = MachineLoad(stage).use(since: load)
            let ownLoad = (processorSeconds(pid) - cpu) / seconds
            let nginxLoad = (stage.serverSeconds - server) / seconds - ownLoad
            let latencies = try prober.stop()
            let survivors = try uploads.finish()
            result.rounds = [
                [
                    "survivors": Double(survivors),
                    "rss_mib": Double(held.resident) / Double(1 << 20),
                    "peak_rss_mib": Double(ProcessStatus(pid).peak) / Double(1 << 20),
                    "kib_each": Double(held.resident - idle) / 1024 / Double(count),
                    "threads": Double(held.threads),
                    "cpu_percent": ownLoad * 100,
                    "nginx_cpu_percent": nginxLoad * 100,
                    "others_percent": others.percent,
                    "heads": Double(latencies.count),
                    "head_p50_ms": percentile(latencies, 0.5) * 1000,
                    "head_p99_ms": percentile(latencies, 0.99) * 1000,
                    "head_max_ms": percentile(latencies, 1) * 1000,
                ]
            ]
            result.others = [others]
            note("E: \(result.name): \(survivors) survived")
            guard survivors == count else {
                throw BenchFailure(
                    "\(count - survivors) of \(count) uploads were lost; \(uploads.firstLoss)"
                )
            }
        } catch {
            waitIfEnding()
            result.failure = error
            note("E: \(result.name) FAILED: \(error)")
            let findings = stage.findings
            if !findings.isEmpty { note(findings) }
        }
        return result
    }

    static let columns = [
        Column(key: "survivors", title: "survived"),
        Column(key: "rss_mib", title: "RSS MiB", decimals: 1),
        Column(key: "peak_rss_mib", title: "peak MiB", decimals: 1),
        Column(key: "kib_each", title: "KiB each", decimals: 1),
        Column(key: "threads", title: "threads"),
        Column(key: "cpu_percent", title: "CPU %", decimals: 1),
        Column(key: "nginx_cpu_percent", title: "nginx %", decimals: 1),
        Column(key: "heads", title: "HEADs"),
        Column(key: "head_p50_ms", title: "p50 ms", decimals: 1),
        Column(key: "head_p99_ms", title: "p99 ms", decimals: 1),
        Column(key: "head_max_ms", title: "max ms", decimals: 1),
        Column(key: "others_percent", title: "others %"),
    ]
}

private final class SlowClient {
    /// The response to the first lost upload.
    private(set) var firstLoss = "none"

    private let count: Int
    private let address: SocketAddress
    private let length: Int
    private var sockets: [Int32] = []
    private var sent: [Int] = []
    private var slot = 0
    private var nextVisit = now()

    private static let slots = 50
    private static let portion = 1000

    /// Creates uploads longer than the content sent while they are opened and held for `seconds`.
    init(_ count: Int, address: SocketAddress, seconds: Double) throws {
        guard count + 200 < openFilesLimit() else {
            throw BenchFailure("\(count) uploads need more than \(openFilesLimit()) open files")
        }
        self.count = count
        self.address = address
        let opening = count / SlowUploads.openingsPerSecond
        length = (Int(seconds) + 2 * opening + 30) * SlowClient.portion
    }

    deinit {
        for socket in sockets { close(socket) }
    }

    /// Opens the uploads at a steady pace, and feeds the open ones.
    func open() throws {
        let start = now()
        while sockets.count < count {
            let due = Int((now() - start) * Double(SlowUploads.openingsPerSecond)) + 1
            while sockets.count < min(due, count) { try openOne() }
            try feed()
        }
    }

    /// Waits for the next slot and writes a portion to each of its uploads.
    func feed() throws {
        pause(nextVisit - now())
        nextVisit = max(nextVisit + 1.0 / Double(SlowClient.slots), now() - 1)
        for index in stride(from: slot, to: sockets.count, by: SlowClient.slots) {
            write(min(SlowClient.portion, length - SlowClient.portion - sent[index]), to: index)
        }
        slot = (slot + 1) % SlowClient.slots
    }

    /// Sends the rest of every upload, and counts the 201 responses with the whole length within 120 s.
    func finish() throws -> Int {
        let deadline = now() + 120
        for index in sockets.indices {
            if index.isMultiple(of: 100) { pause(0.02) }
            while sent[index] < length && now() < deadline {
                let before = sent[index]
                write(length - before, to: index)
                if sent[index] == before {
                    if errno != EAGAIN { break }
                    pause(0.001)
                }
            }
        }
        var survivors = 0
        for index in sockets.indices {
            let response = receive(index, until: deadline)
            let isWhole = response.lowercased().contains("\r\nupload-offset: \(length)\r\n")
            if response.hasPrefix("HTTP/1.1 201") && isWhole {
                survivors += 1
            } else if firstLoss == "none" {
                firstLoss = "one was answered '\(response.prefix(300))' after \(sent[index]) bytes"
            }
        }
        return survivors
    }

    private func openOne() throws {
        let index = sockets.count
        let socket = try connectSocket(to: address)
        let flags = fcntl(socket, F_GETFL)
        _ = fcntl(socket, F_SETFL, flags | O_NONBLOCK)
        sockets.append(socket)
        sent.append(0)
        let request = Request(
            "PUT",
            "/files/slow-\(index)",
            [("Upload-Complete", "?0")],
            length: Int64(length)
        )
        guard request.bytes.withUnsafeBytes({ writeAll(socket, $0) }) else {
            throw BenchFailure(call: "send", on: "the head of upload \(index)")
        }
    }

    /// Writes at most `portion` bytes, as far as the socket accepts them; its response shows a broken socket.
    private func write(_ portion: Int, to index: Int) {
        guard portion > 0 else { return }
        let taken = Content.block.withUnsafeBytes { block in
            Glibc.write(sockets[index], block.baseAddress, min(portion, block.count))
        }
        if taken > 0 { sent[index] += taken }
    }

    /// The response's header section, as far as it arrived before the deadline or the end.
    private func receive(_ index: Int, until deadline: Double) -> String {
        var response: [UInt8] = []
        var block = [UInt8](repeating: 0, count: 4096)
        while now() < deadline {
            var waited = [pollfd(fd: sockets[index], events: Int16(POLLIN), revents: 0)]
            guard poll(&waited, 1, 1000) >= 0 else { break }
            let count = read(sockets[index], &block, block.count)
            if count > 0 { response += block[..<count] }
            let text = String(decoding: response, as: UTF8.self)
            if text.contains("\r\n\r\n") || count == 0 { return text }
            if count < 0 && errno != EAGAIN { return text }
        }
        return String(decoding: response, as: UTF8.self)
    }
}
