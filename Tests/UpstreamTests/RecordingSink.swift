// A sink that records, and shorthands for requests.

import Foundation
import HTTPTypes
import SpoolgateCurl
import SpoolgateUploadProtocol

@testable import SpoolgateUpstream

/// Records a response; throws on request.
final class RecordingSink: ResponseSink {
    struct Refused: Error {}

    var interim: [ResponseHead] = []
    var head: ResponseHead?
    var contentLength: Int64?
    var content: [UInt8] = []
    /// Content beyond this is counted but not kept.
    var keptContent = 1 << 20
    var contentCount = 0
    var refusesHead = false
    var refusesContent = false

    func receive(interim head: ResponseHead) throws { interim.append(head) }

    func receive(head: ResponseHead, contentLength: Int64?) throws {
        if refusesHead { throw Refused() }
        self.head = head
        self.contentLength = contentLength
    }

    func receive(content: RawSpan) throws {
        if refusesContent { throw Refused() }
        contentCount += content.byteCount
        content.withUnsafeBytes { bytes in
            self.content += bytes.prefix(max(0, keptContent - self.content.count))
        }
    }

    var text: String { String(decoding: content, as: UTF8.self) }
}

extension AttemptOutcome {
    var reason: String {
        switch self {
        case .responded: ""
        case .notTried(let reason), .notReached(let reason, _), .noRoom(let reason),
            .deferred(let reason, _), .redirected(let reason), .notForwarded(let reason),
            .indeterminate(let reason, _), .abandoned(let reason),
            .undelivered(let reason):
            reason
        }
    }
    var timedOut: Bool {
        switch self {
        case .notReached(_, let timedOut), .indeterminate(_, let timedOut): timedOut
        case .responded, .notTried, .noRoom, .deferred, .redirected, .notForwarded, .abandoned,
            .undelivered:
            false
        }
    }
    var isNotReached: Bool { if case .notReached = self { true } else { false } }
    var isIndeterminate: Bool { if case .indeterminate = self { true } else { false } }
    var isPeerGone: Bool { if case .abandoned = self { true } else { false } }
    var isDeferred: Bool { if case .deferred = self { true } else { false } }
    var isUnheard: Bool { if case .undelivered = self { true } else { false } }
}

extension UpstreamRequest {
    init(
        _ method: String,
        _ target: String = "/x",
        _ fields: HTTPFields = [:],
        content: UpstreamContent = .none,
        isUpload: Bool = true
    ) throws {
        guard let method = HTTPRequest.Method(method) else { throw RecordingSink.Refused() }
        self.init(
            method: method,
            target: target,
            fields: fields,
            content: content,
            upload: isUpload
                ? UploadID(high: .random(in: .min ... .max), low: .random(in: .min ... .max)) : nil
        )
    }
}

extension Upstream {
    func attempt(
        _ method: String,
        _ target: String = "/x",
        content: UpstreamContent = .none,
        sink: any ResponseSink = RecordingSink()
    ) throws -> AttemptOutcome {
        attempt(try UpstreamRequest(method, target, content: content), sink: sink)
    }
}

/// Generated content of `length` bytes: byte n is n modulo 251.
func pattern(_ length: Int64) -> UpstreamContent {
    .file(descriptor: nil, length: length) { buffer, position in
        let count = Int(min(Int64(buffer.count), length - position))
        fillPattern(.init(rebasing: buffer[..<count]), from: position)
        return count
    }
}

/// `before` bytes of the pattern, `middle` as from a file, and `after` more.
func framedPattern(before: Int, middle: Int64, after: Int) -> UpstreamContent {
    func bytes(_ count: Int, from position: Int64) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: count)
        bytes.withUnsafeMutableBytes { fillPattern($0, from: position) }
        return bytes
    }
    return .framed(
        before: bytes(before, from: 0),
        length: middle,
        read: { buffer, position in
            let count = Int(min(Int64(buffer.count), middle - position))
            fillPattern(.init(rebasing: buffer[..<count]), from: position + Int64(before))
            return count
        },
        after: bytes(after, from: Int64(before) + middle)
    )
}

func patternStream(_ length: Int64, piece: Int, saysLength: Bool) -> UpstreamContent {
    var position: Int64 = 0
    return .stream(length: saysLength ? length : nil) { buffer in
        let count = Int(min(Int64(min(buffer.count, piece)), length - position))
        fillPattern(.init(rebasing: buffer[..<count]), from: position)
        position += Int64(count)
        return count
    }
}

private func fillPattern(_ buffer: UnsafeMutableRawBufferPointer, from position: Int64) {
    for index in buffer.indices {
        buffer[index] = UInt8(truncatingIfNeeded: (position + Int64(index)) % 251)
    }
}

func isPattern(_ bytes: [UInt8]) -> Bool {
    bytes.enumerated().allSatisfy { Int($1) == $0 % 251 }
}

func upstream(
    _ target: String,
    connect: Duration = .seconds(10),
    stall: Duration = .seconds(30),
    response: Duration = .seconds(30),
    authority: String? = nil,
    certificate: String? = nil
) throws -> Upstream {
    var settings = UpstreamSettings(
        targets: [try UpstreamTarget(target)],
        connectTimeout: connect,
        stallTimeout: stall,
        responseTimeout: response
    )
    settings.tls.authorities = authority
    settings.tls.certificate = certificate
    return Upstream(settings)
}
