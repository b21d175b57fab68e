// The web server's side of FastCGI, record by record, so that tests can split and truncate anywhere.
//
// It checks nothing. Waits end after ten seconds unless a test changes that.

import Foundation
import SpoolgateTestSupport

enum RecordType: UInt8 {
    case beginRequest = 1
    case abortRequest = 2
    case endRequest = 3
    case params = 4
    case stdin = 5
    case stdout = 6
    case data = 8
    case getValues = 9
    case getValuesResult = 10
}

enum Record {
    static func bytes(
        _ type: RecordType,
        _ content: [UInt8] = [],
        padding: UInt8 = 0,
        id: UInt16 = 1
    ) -> [UInt8] {
        let head: [UInt8] = [
            1, type.rawValue, UInt8(id >> 8), UInt8(id & 0xFF),
            UInt8(content.count >> 8), UInt8(content.count & 0xFF), padding, 0,
        ]
        return head + content + [UInt8](repeating: 0xAA, count: Int(padding))
    }

    static func begin(role: UInt16 = 1, keepsConnection: Bool = false) -> [UInt8] {
        let flags: UInt8 = keepsConnection ? 1 : 0
        return bytes(
            .beginRequest,
            [UInt8(role >> 8), UInt8(role & 0xFF), flags, 0, 0, 0, 0, 0]
        )
    }

    static func pairs(_ parameters: [(String, String)]) -> [UInt8] {
        func length(_ count: Int) -> [UInt8] {
            guard count > 127 else { return [UInt8(count)] }
            return [
                UInt8(count >> 24) | 0x80, UInt8(count >> 16 & 0xFF), UInt8(count >> 8 & 0xFF),
                UInt8(count & 0xFF),
            ]
        }
        return parameters.flatMap { name, value in
            length(name.utf8.count) + length(value.utf8.count) + Array(name.utf8)
                + Array(value.utf8)
        }
    }

    /// Records of at most `size` bytes, and the empty one that ends the stream.
    static func stream(
        _ type: RecordType,
        _ content: [UInt8],
        size: Int = 65535,
        padding: UInt8 = 0,
        isEnded: Bool = true
    ) -> [UInt8] {
        var all: [UInt8] = []
        for start in stride(from: 0, to: content.count, by: size) {
            let part = Array(content[start..<min(start + size, content.count)])
            all += bytes(type, part, padding: padding)
        }
        return isEnded ? all + bytes(type) : all
    }

    /// Everything before the content.
    static func head(_ parameters: [(String, String)], role: UInt16 = 1) -> [UInt8] {
        begin(role: role) + stream(.params, pairs(parameters))
    }
}

struct Answer {
    var stdout: [UInt8] = []
    /// nil if the connection ended without END_REQUEST.
    var endStatus: UInt8?
    /// Whether the peer closed the connection, and no read timed out.
    var isClosed = false
    var types: [UInt8] = []

    var text: String { String(decoding: stdout, as: UTF8.self) }
    /// The heads up to the final one, and the content after it.
    var blocks: [String] { text.components(separatedBy: "\r\n\r\n") }
    var interims: [Int] {
        blocks.prefix { $0.hasPrefix("Status: 1") }.compactMap { Int($0.dropFirst(8).prefix(3)) }
    }
    var final: Answer {
        var response = self
        let rest = blocks.dropFirst(interims.count).joined(separator: "\r\n\r\n")
        response.stdout = Array(rest.utf8)
        return response
    }
    var head: String { text.components(separatedBy: "\r\n\r\n").first ?? "" }
    var content: String {
        text.components(separatedBy: "\r\n\r\n").dropFirst().joined(separator: "\r\n\r\n")
    }
    var status: Int? {
        let line = head.components(separatedBy: "\r\n").first { $0.hasPrefix("Status: ") }
        return line.flatMap { Int($0.dropFirst(8).prefix(3)) }
    }
}

final class FastCGIClient {
    private let socket: StreamSocket
    private var received: [UInt8] = []

    convenience init(_ path: String) throws {
        try self.init()
        try connect(to: path)
    }

    init() throws { socket = try StreamSocket(for: .path("")) }

    func connect(to path: String) throws {
        try socket.connect(to: .path(path))
        socket.setPatience(seconds: 60)
    }

    deinit { socket.close() }

    func setPatience(seconds: Int) { socket.setPatience(seconds: seconds) }

    /// False if the peer has closed the connection.
    @discardableResult
    func send(_ bytes: [UInt8]) -> Bool { socket.send(bytes) }

    func sendSingly(_ bytes: [UInt8]) {
        for byte in bytes { send([byte]) }
    }

    func closeSending() { shutdown(socket.number, Int32(SHUT_WR)) }

    func response() -> Answer {
        var count = receive()
        while count > 0 { count = receive() }
        let isClosed = count == 0 || errno == ECONNRESET
        var response = answerSoFar
        response.isClosed = isClosed
        return response
    }

    /// Returns false if the condition never becomes true.
    func waits(until condition: (Answer) -> Bool) -> Bool {
        while !condition(answerSoFar) {
            guard receive() > 0 else { return false }
        }
        return true
    }

    var numbers: Set<UInt16> {
        var numbers: Set<UInt16> = []
        var rest = received[...]
        while rest.count >= 8 {
            let start = rest.startIndex
            numbers.insert(UInt16(rest[start + 2]) << 8 | UInt16(rest[start + 3]))
            rest = rest.dropFirst(
                8 + (Int(rest[start + 4]) << 8 | Int(rest[start + 5])) + Int(rest[start + 6])
            )
        }
        return numbers
    }

    /// From the records received completely.
    private var answerSoFar: Answer {
        var response = Answer()
        Self.parse(received, into: &response)
        return response
    }

    private func receive() -> Int {
        guard let part = socket.receive() else { return -1 }
        received += part
        return part.count
    }

    private static func parse(_ bytes: [UInt8], into response: inout Answer) {
        var rest = bytes[...]
        while rest.count >= 8 {
            let start = rest.startIndex
            let length = Int(rest[start + 4]) << 8 | Int(rest[start + 5])
            let whole = 8 + length + Int(rest[start + 6])
            guard rest.count >= whole else { return }
            let content = rest[(start + 8)..<(start + 8 + length)]
            response.types.append(rest[start + 1])
            switch RecordType(rawValue: rest[start + 1]) {
            case .stdout: response.stdout += content
            case .endRequest: response.endStatus = content[content.startIndex + 4]
            default: break
            }
            rest = rest.dropFirst(whole)
        }
    }
}
