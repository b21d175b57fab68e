// The thread pool under load, with garbage, and during a drain.

import Foundation
import HTTPTypes
import SpoolgateExchange
import SpoolgatePosix
import SpoolgateRequests
import SpoolgateSettings
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import Synchronization
import Testing

@testable import SpoolgateFastCGIFront

extension FrontTests {
    @Suite struct PoolTests {
        /// The listening one included.
        private static func sockets(of server: TestServer) throws -> Int {
            // The table takes several reads; Foundation makes one. Names of other sockets may not be UTF-8.
            let table = try TextFile.read("/proc/self/net/unix", limit: 16 << 20)
            return table.split(separator: "\n").count { $0.hasSuffix(" \(server.path)") }
        }

        @Test("the pool grows to its maximum; later comers wait and are served; the pool shrinks")
        func growth() throws {
            let gate = Gate()
            let server = try TestServer({ $0.maximum = 5 }) { exchange in
                gate.pass()
                TestServer.reply(exchange, 200, "served")
            }
            defer { server.stop() }
            let request = Record.head(parameters(length: "0")) + Record.bytes(.stdin)
            let clients = try (0..<9).map { _ in
                let client = try server.client()
                client.send(request)
                return client
            }
            #expect(eventually { server.server.load.active == 5 })
            #expect(server.server.load.threads == 5)
            gate.open()
            for client in clients { #expect(client.response().content == "served") }
            #expect(eventually { server.server.load.active == 0 })
            #expect(try server.exchange(request).content == "served")
            #expect(eventually { server.server.load.threads <= 4 })
            #expect(eventually { server.server.load.active == 0 })
        }

        @Test("a peer that sends no request, or one byte at a time, is disconnected")
        func silentPeers() throws {
            let server = try TestServer(changing: {
                $0.parametersTimeout = .milliseconds(300)
                $0.maximum = 3
            })
            defer { server.stop() }
            let silent = try (0..<2).map { _ in try server.client() }
            let slow = try server.client()
            let deadline = Deadline.after(.seconds(8))
            var head = Record.head(
                parameters(length: "0", [("X", String(repeating: "y", count: 9999))])
            )[...]
            while let byte = head.popFirst(), slow.send([byte]), !deadline.hasPassed {
                usleep(10_000)
            }
            #expect(!deadline.hasPassed)
            for client in silent { #expect(client.response().isClosed) }
            #expect(eventually { server.events.filter { $0 == .noRequest }.count == 3 })
            let response = try server.exchange(Record.head(parameters(length: "0")))
            #expect(response.status == 200)
        }

        @Test("hundreds of connections full of garbage leave nothing behind")
        func garbage() throws {
            let server = try TestServer(changing: { $0.parametersTimeout = .milliseconds(500) })
            defer { server.stop() }
            _ = try server.exchange(Record.head(parameters(length: "0")))
            #expect(eventually { server.server.load.active == 0 })
            #expect(eventually { (try? Self.sockets(of: server)) == 1 })
            var random = SplitMix(seed: 42)
            let whole =
                Record.head(parameters(length: "3", [("HTTP_X", "y")]))
                + Record.stream(.stdin, [1, 2, 3], size: 2, padding: 3)
            for round in 0..<400 {
                let client = try server.client()
                switch round % 4 {
                case 0:
                    client.send(
                        (0..<Int.random(in: 0...300, using: &random)).map { _ in
                            UInt8.random(in: 0...255, using: &random)
                        }
                    )
                case 1:
                    client.send(
                        Array(whole.prefix(Int.random(in: 0..<whole.count, using: &random)))
                    )
                case 2:
                    var bytes = whole
                    let place = Int.random(in: 0..<bytes.count, using: &random)
                    bytes[place] = UInt8.random(in: 0...255, using: &random)
                    client.send(bytes)
                default:
                    client.send(
                        Record.bytes(.getValues, Record.pairs([("FCGI_MAX_CONNS", "")]), id: 0)
                    )
                }
                client.closeSending()
                if round % 3 == 0 { _ = client.response() }
            }
            #expect(eventually { server.server.load.active == 0 })
            #expect(eventually { (try? Self.sockets(of: server)) == 1 })
            #expect(eventually { server.server.load.threads <= 4 })
            let response = try server.exchange(whole)
            #expect(response.content == Received.text([1, 2, 3]))
        }

        @Test("a management record before the request gets a response")
        func managementRecord() throws {
            let server = try TestServer()
            defer { server.stop() }
            let query = Record.bytes(
                .getValues,
                Record.pairs([("FCGI_MPXS_CONNS", "")]),
                padding: 2,
                id: 0
            )
            let response = try server.exchange(query + Record.head(parameters(length: "0")))
            #expect(response.types.first == RecordType.getValuesResult.rawValue)
            #expect(response.status == 200)
        }

        @Test("running out of descriptors stops nothing")
        func noDescriptors() throws {
            let server = try TestServer()
            defer { server.stop() }
            // Sockets are created while descriptors are available.
            let clients = try (0..<64).map { _ in try FastCGIClient() }
            var connected = 0
            let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
            var old = rlimit()
            getrlimit(resource, &old)
            let highest = try #require(
                FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")
                    .compactMap { Int32($0) }.max()
            )
            var new = rlimit(rlim_cur: rlim_t(highest) + 1, rlim_max: old.rlim_max)
            setrlimit(resource, &new)
            var fillers: [Int32] = []
            let isReported = eventually {
                // Other tests close descriptors meanwhile, and the server could use one.
                while case let filler = dup(0), filler >= 0 { fillers.append(filler) }
                if connected < clients.count,
                    (try? clients[connected].connect(to: server.path)) != nil
                {
                    connected += 1
                }
                return server.events.contains {
                    if case .acceptFailed = $0 { true } else { false }
                }
            }
            setrlimit(resource, &old)
            for filler in fillers { close(filler) }
            #expect(isReported)
            let client = try #require(clients[..<connected].last)
            client.send(Record.head(parameters(length: "0")) + Record.bytes(.stdin))
            #expect(client.response().status == 200)
        }

        @Test("a drained server has finished every request and removed its socket")
        func drain() throws {
            let gate = Gate()
            let server = try TestServer { exchange in
                if (try? exchange.head.get().method) == .get {
                    gate.pass()
                    TestServer.reply(exchange, 200, "finished")
                } else {
                    TestServer.reply(exchange, 503, Received(all: exchange).end)
                }
            }
            let receiving = try server.client()
            receiving.send(Record.head(parameters(length: "2")) + Record.bytes(.stdin, [1]))
            let working = try server.client()
            working.send(Record.head(parameters("GET", length: "0")) + Record.bytes(.stdin))
            // Its parameters arrive during the drain.
            let slow = try server.client()
            let head = Record.head(parameters(length: "0"))
            slow.send(Array(head.prefix(20)))
            #expect(eventually { server.server.load.active == 3 })
            #expect(!server.server.drain(until: .after(.milliseconds(300))) {})
            receiving.send(Record.bytes(.stdin, [2]) + Record.bytes(.stdin))
            slow.send(Array(head.dropFirst(20)) + Record.bytes(.stdin))
            #expect(receiving.response().content.hasSuffix("complete"))
            #expect(slow.response().content.hasSuffix("complete"))
            gate.open()
            #expect(server.stop())
            #expect(working.response().content == "finished")
            #expect(server.server.load.threads == 0)
            #expect(!FileManager.default.fileExists(atPath: server.path))
            #expect(throws: (any Error).self) { try server.client() }
        }

        @Test("a silent connection does not delay the end")
        func silentDrain() throws {
            let server = try TestServer { TestServer.reply($0, 200, "never") }
            let silent = try server.client()
            #expect(eventually { server.server.load.active == 1 })
            let limit = Deadline.after(.seconds(8))
            #expect(server.server.drain(until: .after(.seconds(300))) {})
            #expect(!limit.hasPassed)
            withExtendedLifetime(silent) {}
        }

        @Test("a drained server ends interrupted requests at once, also late ones")
        func interruptedDrain() throws {
            let late = Mutex<[@Sendable () -> Void]>([])
            let server = try TestServer { exchange in
                late.withLock { $0.append(exchange.interrupt) }
                TestServer.reply(exchange, 503, Received(all: exchange).end)
            }
            let receiving = try server.client()
            receiving.send(Record.head(parameters(length: "9")) + Record.bytes(.stdin, [1]))
            let slow = try server.client()
            let head = Record.head(parameters(length: "9"))
            slow.send(Array(head.prefix(20)))
            #expect(eventually { server.server.load.active == 2 })
            var calls = 0
            let isDrained = server.server.drain(until: .after(.seconds(10))) {
                calls += 1
                if calls == 2 {
                    slow.send(Array(head.dropFirst(20)) + Record.bytes(.stdin, [1]))
                }
                for release in late.withLock({ $0 }) { release() }
            }
            #expect(isDrained)
            #expect(receiving.response().content == "released")
            #expect(slow.response().content == "released")
        }
    }
}

/// The arithmetic of the pool, without threads.
@Suite struct ThreadPoolTests {
    @Test(
        "a busy period ends once half of its threads are gone, and each halving is reported once"
    )
    func busyTime() {
        var pool = ThreadPool(minimumSpare: 4, maximum: 1001)
        func isEnded() -> Bool { pool.busyTimeHasPassed() }
        for _ in 0..<16 { pool.threadStarts() }
        for _ in 0..<12 { pool.idleThreadEnds() }
        #expect(!isEnded(), "more threads than usually wait")
        for _ in 0..<396 { pool.threadStarts() }
        #expect(!isEnded())
        for _ in 0..<199 { pool.idleThreadEnds() }
        #expect(!isEnded())
        pool.idleThreadEnds()
        #expect(isEnded())
        #expect(!isEnded())
        for _ in 0..<150 { pool.idleThreadEnds() }
        #expect(isEnded())
        for _ in 0..<300 { pool.threadStarts() }
        for _ in 0..<300 { pool.idleThreadEnds() }
        #expect(isEnded())
    }
}
