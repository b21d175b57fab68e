// The lines of a response's head, one after the other, made into heads.
//
// libcurl finds the line ends; what stands on a line is judged here, strictly enough that nothing
// ambiguous about status or length is passed on (RFC 9112 §4, §5; RFC 9110 §8.6). It does no I/O
// and holds at most `sizeLimit` bytes of one head.

import HTTPTypes
import TextFormats
import UploadProtocol

/// Reads heads line by line.
struct ResponseHeadReader {
    /// Most bytes of one head.
    static let sizeLimit = 256 * 1024
    /// Most field lines of one head; HTTPFields ends the process at 65535.
    static let lineLimit = 2000

    /// What a line did.
    enum Step {
        /// The head goes on.
        case more
        /// The head is whole; `contentLength` where it told one.
        case head(ResponseHead, contentLength: Int64?)
    }

    /// What is wrong with a head, as a part of a sentence.
    struct Malformed: Error {
        var reason: String
    }

    private var status: HTTPResponse.Status?
    private var fields = HTTPFields()
    private var pending: (name: HTTPField.Name, value: [UInt8])?
    private var size = 0

    /// Takes one line with its line end.
    mutating func take(_ raw: UnsafeRawBufferPointer) throws(Malformed) -> Step {
        size += raw.count
        guard size <= Self.sizeLimit else {
            throw Malformed(reason: "its head is longer than \(Self.sizeLimit) bytes")
        }
        var end = raw.count
        if end > 0, raw[end - 1] == 0x0a { end -= 1 }
        if end > 0, raw[end - 1] == 0x0d { end -= 1 }
        let line = UnsafeRawBufferPointer(rebasing: raw[..<end])
        guard status != nil else {
            status = try Self.statusLine(line)
            return .more
        }
        guard let first = line.first else { return try finish() }
        if first == 0x20 || first == 0x09 {
            try unfold(line)
        } else {
            flush()
            guard fields.count < Self.lineLimit else {
                throw Malformed(reason: "its head has more than \(Self.lineLimit) field lines")
            }
            pending = try Self.fieldLine(line)
        }
        return .more
    }

    private mutating func finish() throws(Malformed) -> Step {
        flush()
        guard let status else { throw Malformed(reason: "it has no status line") }
        let head = ResponseHead(status: status, fields: fields)
        self = ResponseHeadReader()
        return .head(head, contentLength: try Self.contentLength(head.fields))
    }

    private mutating func flush() {
        if let pending {
            fields.append(HTTPField(name: pending.name, lenientValue: pending.value))
        }
        pending = nil
    }

    /// A line folded onto the one before it: one space stands for the fold (RFC 9112 §5.2).
    private mutating func unfold(_ line: UnsafeRawBufferPointer) throws(Malformed) {
        guard let (name, start) = pending else {
            throw Malformed(reason: "its first field line begins with a space")
        }
        pending = (name, start + [0x20] + line[...].withoutOuterWhitespace)
    }

    /// `HTTP/1.1 200 OK`; the reason phrase and the space before it may be absent.
    private static func statusLine(
        _ line: UnsafeRawBufferPointer
    ) throws(Malformed) -> HTTPResponse.Status {
        let prefix = Array("HTTP/1.".utf8)
        guard line.count >= 12, line.starts(with: prefix), line[7].isDigit, line[8] == 0x20,
            line[9..<12].allSatisfy(\.isDigit), line.count == 12 || line[12] == 0x20
        else {
            throw Malformed(reason: "its first line is no HTTP/1 status line")
        }
        let code = line[9..<12].reduce(0) { $0 * 10 + Int($1 - 0x30) }
        guard (100...999).contains(code) else {
            throw Malformed(reason: "its status \(code) is below 100")
        }
        let phrase = line.count > 13 ? line[13...].withoutOuterWhitespace : line[line.endIndex...]
        return HTTPResponse.Status(
            code: code,
            reasonPhrase: String(decoding: phrase, as: UTF8.self)
        )
    }

    private static func fieldLine(
        _ line: UnsafeRawBufferPointer
    ) throws(Malformed) -> (HTTPField.Name, [UInt8]) {
        guard let colon = line.firstIndex(of: 0x3a),
            let name = HTTPField.Name(String(decoding: line[..<colon], as: UTF8.self))
        else {
            throw Malformed(reason: "a line of its head is no field line")
        }
        guard !line.contains(0) else {
            throw Malformed(reason: "its field \(name) has a NUL byte")
        }
        return (name, Array(line[(colon + 1)...].withoutOuterWhitespace))
    }

    /// The one length that all `Content-Length` lines agree on (RFC 9110 §8.6).
    private static func contentLength(_ fields: HTTPFields) throws(Malformed) -> Int64? {
        guard !fields.contains(.transferEncoding) else { return nil }
        var length: Int64?
        for field in fields[fields: .contentLength] {
            for part in field.value.split(separator: ",", omittingEmptySubsequences: false) {
                let text = part.withoutOuterWhitespace
                guard let one = Int64(digits: text), length == nil || length == one else {
                    throw Malformed(reason: "its Content-Length is \(field.value)")
                }
                length = one
            }
        }
        return length
    }
}
