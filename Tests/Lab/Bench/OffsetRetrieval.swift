// Section D: the rate of offset retrieval.
//
// One thread drives all connections with poll, each with one request in progress. All rows use this loop and requests
// of the same form, so that the client costs the same.

import Glibc
import SpoolgateTestSupport

enum OffsetRetrieval {
    static let connections = 16
    static let returnRow = "nginx return 200"
    static let headRow = "spoolgate: HEAD"
    static let tusdRow = "tusd: HEAD"

    static func run(_ options: Options, on stage: Stage) throws -> SectionResult {
        var uploads: [UploadResource] = []
        if !options.peersOnly {
            for index in 0..<connections {
                let connection = try Connection(to: stage.address)
                let upload = try UploadResource.create("/files/head-\(index)", connection)
                _ = try upload.append(4096, at: 0, last: false)
                uploads.append(upload)
            }
        }
        var kept: [TusUpload] = []
        if options.tusdProgram != nil {
            for _ in 0..<connections {
                let upload = try TusUpload(length: 8192, Connection(to: stage.address))
                try upload.append(4096, at: 0)
                kept.append(upload)
            }
        }
        let (paths, keptPaths) = (uploads.map(\.path), kept.map(\.path))
        let returned = (0..<connections).map { "/return/\($0)" }
        let seconds = options.rateSeconds
        let rows = [
            Row(name: returnRow, behind: .nothing) { _ in
                try HeadLoop(returned, stage.address, response: "HTTP/1.1 200", offset: nil)
                    .run(for: seconds)
            },
            Row(name: headRow, behind: .gateway) { _ in
                try HeadLoop(paths, stage.address, response: "HTTP/1.1 204", offset: "4096")
                    .run(for: seconds)
            },
            Row(name: tusdRow, behind: .tusd) { _ in
                try HeadLoop(
                    keptPaths,
                    stage.address,
                    fields: TusUpload.fields,
                    response: "HTTP/1.1 200",
                    offset: "4096"
                ).run(for: seconds)
            },
        ]
        return takeTurns(
            rows,
            on: stage,
            section: .offsetRetrieval,
            title: "offset retrieval (HEAD), \(connections) connections, each its own upload",
            columns: rateColumns(reference: returnRow),
            options: options,
            memory: 0,
            figures: rateFigures
        )
    }
}

private final class HeadLoop {
    private let response: [UInt8]
    private let offsetLine: [UInt8]?
    private let requests: [[UInt8]]
    private var sockets: [pollfd] = []
    private var started: [Double]
    private var heads: [[UInt8]]
    private var outcome = Outcome()

    /// Connects once for each path; every response must begin with `response` and contain `offset`.
    init(
        _ paths: [String],
        _ address: SocketAddress,
        fields: [(name: String, value: String)] = [],
        response: String,
        offset: String?
    ) throws {
        self.response = Array(response.utf8)
        offsetLine = offset.map { Array("\r\nupload-offset: \($0)\r\n".utf8) }
        requests = paths.map { Request("HEAD", $0, fields).bytes }
        started = paths.map { _ in 0 }
        heads = paths.map { _ in [] }
        for _ in paths {
            let socket = try connectSocket(to: address)
            sockets.append(pollfd(fd: socket, events: Int16(POLLIN), revents: 0))
        }
    }

    deinit {
        for socket in sockets { close(socket.fd) }
    }

    /// Sends requests for `seconds`, then awaits the outstanding responses.
    func run(for seconds: Double) throws -> Outcome {
        let end = now() + seconds
        for index in sockets.indices { try ask(index) }
        var underWay = sockets.count
        var block = [UInt8](repeating: 0, count: 4096)
        while underWay > 0 {
            guard poll(&sockets, nfds_t(sockets.count), 10_000) > 0 else {
                throw BenchFailure("no response to HEAD for 10 s")
            }
            let time = now()
            for index in sockets.indices where sockets[index].revents != 0 {
                let count = read(sockets[index].fd, &block, block.count)
                guard count > 0 else { throw BenchFailure("a connection ended without a response") }
                heads[index] += block[..<count]
                guard heads[index].suffix(4).elementsEqual("\r\n\r\n".utf8) else { continue }
                outcome.latencies.append(time - started[index])
                outcome.requests += 1
                try check(heads[index])
                heads[index].removeAll(keepingCapacity: true)
                if time < end { try ask(index) } else { underWay -= 1 }
            }
        }
        return outcome
    }

    private func ask(_ index: Int) throws {
        started[index] = now()
        guard requests[index].withUnsafeBytes({ writeAll(sockets[index].fd, $0) }) else {
            throw BenchFailure(call: "send", on: "a HEAD")
        }
    }

    private func check(_ head: [UInt8]) throws {
        guard head.starts(with: response), contains(head, offsetLine) else {
            throw BenchFailure("a HEAD received \(String(decoding: head, as: UTF8.self))")
        }
    }

    private func contains(_ head: [UInt8], _ line: [UInt8]?) -> Bool {
        guard let line else { return true }
        guard head.count >= line.count else { return false }
        return (0...(head.count - line.count)).contains { start in
            for index in line.indices where head[start + index] | 0x20 != line[index] | 0x20 {
                return false
            }
            return true
        }
    }
}
