// A client's request: the reported parts of a response, and the result without one.

import HTTPTypes
import SpoolgateCurl
import SpoolgatePosix
import SpoolgateTestSupport
import SpoolgateUploadProtocol
import SpoolgateUpstream
import Synchronization
import Testing

@Suite struct ClientTransferTests {
    private func run(
        _ origin: LoopbackOrigin,
        _ content: ClientContent? = nil,
        timeout: Duration = .seconds(60),
        isStopped: @escaping () -> Bool = { false }
    ) -> ClientTransfer {
        var request = ClientRequest(.post, "\(origin.base)/a?b", content: content)
        request.fields = [.uploadComplete: "?0"]
        request.timeout = timeout
        let transfer = ClientTransfer(request, isStopped: isStopped)
        transfer.run()
        return transfer
    }

    /// Content of `size` bytes that then calls `step`.
    private func held(_ size: Int64, _ step: @escaping (ClientTransfer) -> ClientContent.Step)
        -> ClientContent
    {
        ClientContent(length: size * 2) { buffer, transfer in
            guard transfer.sent < size else { return step(transfer) }
            let count = min(buffer.count, Int(size - transfer.sent))
            for index in 0..<count { buffer[index] = 7 }
            return .bytes(count)
        }
    }

    @Test("interim responses are passed on before content that waits for them, then the final one")
    func interim() throws {
        let origin = try LoopbackOrigin { connection in
            guard var request = try connection.receiveHead() else { return }
            try connection.send("HTTP/1.1 104 Go on\r\nLocation: /u\r\n\r\n")
            try connection.send("HTTP/1.1 104 Go on\r\nUpload-Offset: 0\r\n\r\n")
            try connection.receiveContent(of: &request)
            try connection.response("201 Created", fields: ["X: y"], content: "done")
        }
        let content = ClientContent(length: 5) { buffer, transfer in
            guard transfer.interim.count == 2 else { return .later }
            guard transfer.sent == 0 else { return .bytes(0) }
            buffer.copyBytes(from: Array("hello".utf8))
            return .bytes(5)
        }
        let transfer = run(origin, content)
        #expect(transfer.fault == nil)
        #expect(transfer.interim.map(\.head.status.code) == [104, 104])
        #expect(transfer.interim.first?.head.fields[.location] == "/u")
        #expect(transfer.interim.allSatisfy { $0.sent == 0 })
        #expect(transfer.head?.status.code == 201 && transfer.sent == 5)
        #expect(transfer.content == Array("done".utf8))
        #expect(!transfer.isHTTP2)
        let request = try #require(origin.requests.first)
        #expect(request.line == "POST /a?b HTTP/1.1")
        #expect(request.values("upload-complete") == ["?0"])
        #expect(request.values("expect").isEmpty && request.values("content-length") == ["5"])
    }

    @Test("a response ends waiting content, and so does the end of the connection")
    func ended() throws {
        let respondingTo = try LoopbackOrigin { connection in
            _ = try connection.receiveHead()
            try connection.response("409 Conflict")
        }
        let responded = run(respondingTo, held(1_000) { _ in .later })
        #expect(responded.head?.status.code == 409 && responded.fault == nil)
        for resets in [false, true] {
            let closing = try LoopbackOrigin { connection in
                _ = try connection.receiveHead()
                _ = connection.discard(1_000)
                if resets { connection.reset() }
            }
            let closed = run(closing, held(1_000) { _ in .later })
            #expect(closed.head == nil && closed.fault?.kind == .noResponse)
        }
    }

    @Test("content aborts the connection with a reset, once all of its bytes have left")
    func reset() throws {
        let received = Mutex(0)
        let origin = try LoopbackOrigin { connection in
            _ = try connection.receiveHead()
            while true {
                let bytes = connection.receive()
                if bytes.isEmpty { return }
                received.withLock { $0 += bytes.count }
            }
        }
        let size: Int64 = 3 << 20
        let transfer = run(
            origin,
            held(size) { transfer in
                guard transfer.unsent == 0, received.withLock({ $0 }) == Int(size) else {
                    return .later
                }
                return .reset
            }
        )
        #expect(transfer.fault?.kind == .stopped && transfer.sent == size)
        #expect(origin.requests.isEmpty, "it was not received completely")
    }

    @Test("a timeout, a stop, a refused connection and an invalid response are distinguished")
    func faults() throws {
        let silent = try LoopbackOrigin { connection in
            _ = try connection.receiveHead()
            connection.waitForEnd()
        }
        #expect(run(silent, timeout: .milliseconds(300)).fault?.kind == .silence)
        #expect(run(silent, isStopped: { silent.connectionCount > 1 }).fault?.kind == .stopped)
        let babbling = try LoopbackOrigin { connection in
            _ = try connection.receiveHead()
            try connection.send("HTTP/1.1 200 OK\r\nno field\r\n\r\n")
        }
        #expect(run(babbling).fault?.kind == .noResponse)
        babbling.stop()
        #expect(run(babbling).fault?.kind == .noConnection)
        let nameless = ClientTransfer(ClientRequest(.head, "http://nowhere.invalid/"))
        nameless.run()
        #expect(nameless.fault?.kind == .noAddress)
        let unspoken = ClientTransfer(ClientRequest(.head, "ftp://127.0.0.1/"))
        unspoken.run()
        #expect(unspoken.fault?.kind == .notTried)
    }

    @Test("a transfer that only connects sends nothing")
    func connects() throws {
        let origin = try LoopbackOrigin(status: "200 OK")
        var request = ClientRequest(.head, origin.base)
        request.onlyConnects = true
        let transfer = ClientTransfer(request)
        transfer.run()
        #expect(transfer.fault == nil && transfer.head == nil)
        #expect(transfer.roundTrip > .zero)
        #expect(origin.requests.isEmpty)
    }
}
