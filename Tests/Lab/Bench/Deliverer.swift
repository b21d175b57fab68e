// spoolgate's delivery alone: a process that sends a file repeatedly with the daemon's own code, without nginx, FastCGI
// and record.
//
// It prints a line `BYTES SECONDS` for each delivery, with the bytes that the sink counted.

import Glibc
import HTTPTypes
import SpoolgateCurl
import SpoolgateUploadProtocol
import SpoolgateUpstream

/// The process `spoolgate-bench deliver`.
enum Deliverer {
    static func send(
        _ file: String,
        length: Int64,
        count: Int,
        on stage: Stage
    ) throws -> Outcome {
        let run = try CommandRun(
            "deliverer",
            program: ownProgram(),
            arguments: ["deliver", stage.sinkURL, file, "\(count)"]
                + (stage.authority.map { [$0] } ?? []),
            output: stage.work + "/deliverer.out",
            log: stage.work + "/deliverer.log"
        )
        return try Outcome(run, length: length, count: count)
    }

    /// Delivers; the arguments are target, file, count, and the authority for https.
    static func run(_ arguments: ArraySlice<String>) throws {
        let arguments = Array(arguments)
        guard arguments.count >= 3, let count = Int(arguments[2]) else {
            throw BenchFailure("deliver needs TARGET FILE COUNT [AUTHORITY]")
        }
        let file = open(arguments[1], O_RDONLY | O_CLOEXEC)
        guard file >= 0 else { throw BenchFailure(call: "open", on: arguments[1]) }
        let length = try fileLength(arguments[1])
        var settings = UpstreamSettings(targets: [try UpstreamTarget(arguments[0])])
        settings.tls.authorities = arguments.count > 3 ? arguments[3] : nil
        let upstream = Upstream(settings)
        var lines = ""
        for number in 0..<count {
            let sink = CountingSink()
            let start = now()
            let outcome = upstream.attempt(
                request("/\(number)", file: file, length: length),
                sink: sink
            )
            let seconds = now() - start
            guard outcome == .responded, sink.status == 200 else {
                throw BenchFailure("\(arguments[0]): \(outcome), status \(sink.status)")
            }
            lines += "\(sink.count) \(seconds)\n"
        }
        lines.withUTF8 { _ = write(STDOUT_FILENO, $0.baseAddress, $0.count) }
    }

    private static func request(_ target: String, file: Int32, length: Int64) -> UpstreamRequest {
        UpstreamRequest(
            method: .put,
            target: target,
            fields: [:],
            content: .file(descriptor: nil, length: length) { buffer, position in
                let count = pread(file, buffer.baseAddress, buffer.count, Int(position))
                guard count >= 0 else { throw BenchFailure(call: "pread", on: target) }
                return count
            },
            upload: UploadID(high: 0, low: 0)
        )
    }
}

/// Keeps the status and the number of the sink's response.
private final class CountingSink: ResponseSink {
    private(set) var status = 0
    private var text = ""

    var count: Int64 { Int64(text.prefix { $0 != "\n" }) ?? -1 }

    func receive(interim head: ResponseHead) {}

    func receive(head: ResponseHead, contentLength: Int64?) { status = head.status.code }

    func receive(content: RawSpan) {
        content.withUnsafeBytes { text += String(decoding: $0.prefix(40), as: UTF8.self) }
    }
}
