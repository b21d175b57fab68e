// Parses response heads, and refuses any ambiguous status or length (RFC 9112 §4, §5; RFC 9110 §8.6).
//
// Invariant: a reader holds at most `sizeLimit` bytes.

import HTTPTypes
import SpoolgateTextFormats
package import SpoolgateUploadProtocol

/// Parses heads line by line.
package struct ResponseHeadReader {
    /// The maximum size of a head in bytes.
    package static let sizeLimit = 256 * 1024
    /// The maximum number of field lines in a head; HTTPFields traps at 65535.
    package static let lineLimit = 2000

    /// The result of parsing one line.
    package enum Step {
        case more
        /// The head is complete. `contentLength` is in bytes, or nil if the head states no length.
        case head(ResponseHead, contentLength: Int64?)
    }

    /// A malformed head.
    package struct Malformed: Error {
        /// The reason, as a clause.
        package var reason: String

        /// Creates an error.
        package init(reason: String) { self.reason = reason }
    }

    private var status: HTTPResponse.Status?
    private var fields = HTTPFields()
    private var size = 0

    /// Creates a reader that expects the first line of a head.
    package init() {}

    /// Parses one line, including its line end.
    package mutating func take(_ raw: UnsafeRawBufferPointer) throws(Malformed) -> Step {
        size += raw.count
        guard size <= Self.sizeLimit else {
            throw Malformed(reason: "the header section is longer than \(Self.sizeLimit) bytes")
        }
        var end = raw.count
        if end > 0, raw[end - 1] == 0x0a { end -= 1 }
        if end > 0, raw[end - 1] == 0x0d { end -= 1 }
        let line = UnsafeRawBufferPointer(rebasing: raw[..<end])
        guard status != nil else {
            status = try Self.statusLine(line)
            fields.reserveCapacity(8)
            return .more
        }
        guard let first = line.first else { return try finish() }
        if first == 0x20 || first == 0x09 {
            try unfold(line)
        } else {
            guard fields.count < Self.lineLimit else {
                throw Malformed(
                    reason: "the header section has more than \(Self.lineLimit) field lines"
                )
            }
            fields.append(try Self.fieldLine(line))
        }
        return .more
    }

    private mutating func finish() throws(Malformed) -> Step {
        guard let status else { throw Malformed(reason: "it has no status line") }
        let head = ResponseHead(status: status, fields: fields)
        self = ResponseHeadReader()
        return .head(head, contentLength: try Self.contentLength(head.fields))
    }

    /// Appends a continuation line to the last field's value, and replaces the fold with a space (RFC 9112 §5.2).
    private mutating func unfold(_ line: UnsafeRawBufferPointer) throws(Malformed) {
        guard let last = fields.last else {
            throw Malformed(reason: "the first field line begins with a space")
        }
        let start = last.withUnsafeBytesOfValue { Array($0) }
        fields[fields.count - 1] = HTTPField(
            name: last.name,
            lenientValue: start + [0x20] + line[...].withoutOuterWhitespace
        )
    }

    /// Parses `HTTP/1.1 200 OK`; the reason phrase and the space before it are optional.
    private static func statusLine(
        _ line: UnsafeRawBufferPointer
    ) throws(Malformed) -> HTTPResponse.Status {
        guard line.count >= 12, line.starts(with: "HTTP/1.".utf8), line[7].isDigit, line[8] == 0x20,
            line[9..<12].allSatisfy(\.isDigit), line.count == 12 || line[12] == 0x20
        else {
            throw Malformed(reason: "the first line is not an HTTP/1 status line")
        }
        let code = line[9..<12].reduce(0) { $0 * 10 + Int($1 - 0x30) }
        guard (100...999).contains(code) else {
            throw Malformed(reason: "status \(code) is below 100")
        }
        let phrase = line.count > 13 ? line[13...].withoutOuterWhitespace : line[line.endIndex...]
        return HTTPResponse.Status(
            code: code,
            reasonPhrase: String(decoding: phrase, as: UTF8.self)
        )
    }

    private static func fieldLine(
        _ line: UnsafeRawBufferPointer
    ) throws(Malformed) -> HTTPField {
        guard let colon = line.firstIndex(of: 0x3a),
            let name = ResponseFieldNames.name(.init(rebasing: line[..<colon]))
        else {
            throw Malformed(reason: "a line of the header section is not a field line")
        }
        guard !line.contains(0) else {
            throw Malformed(reason: "field \(name) contains NUL")
        }
        let value = UnsafeRawBufferPointer(
            rebasing: line[(colon + 1)...].withoutOuterWhitespace
        )
        if value.allSatisfy({ (0x20...0x7e).contains($0) }) {
            return HTTPField(name: name, value: String(decoding: value, as: UTF8.self))
        }
        return HTTPField(name: name, lenientValue: value)
    }

    /// Returns the length in `Content-Length` (RFC 9110 §8.6), or nil if the field is missing.
    ///
    /// `Transfer-Encoding` also makes the result nil.
    ///
    /// Throws an error if a length is malformed or several lengths differ.
    private static func contentLength(_ fields: HTTPFields) throws(Malformed) -> Int64? {
        var length: Int64?
        var fault: Malformed?
        for field in fields {
            if field.name == .transferEncoding { return nil }
            guard field.name == .contentLength, fault == nil else { continue }
            let value = field.value
            if length == nil, let one = Int64(digits: value) {
                length = one
                continue
            }
            for part in value.split(separator: ",", omittingEmptySubsequences: false) {
                let one = Int64(digits: part.withoutOuterWhitespace)
                if one == nil || length ?? one != one {
                    fault = Malformed(reason: "Content-Length is \(value)")
                }
                length = one
            }
        }
        if let fault { throw fault }
        return length
    }
}

// MARK: Field names

// Common response field names, created once and looked up by a line's bytes.
//
// Invariant: a name keeps the spelling of the line.

enum ResponseFieldNames {
    /// Returns the field name with these bytes, or nil if the bytes are not a valid name.
    static func name(_ bytes: UnsafeRawBufferPointer) -> HTTPField.Name? {
        if bytes.count < byLength.count {
            for known in byLength[bytes.count] where bytes.elementsEqual(known.bytes) {
                return known.name
            }
        }
        return HTTPField.Name(String(decoding: bytes, as: UTF8.self))
    }

    private struct Known {
        let bytes: [UInt8]
        let name: HTTPField.Name

        init(_ text: String) {
            bytes = Array(text.utf8)
            name = .made(text)
        }
    }

    private static let byLength: [[Known]] = {
        let names = [
            "Accept-Ranges", "Access-Control-Allow-Origin", "Age", "Allow", "Cache-Control",
            "Connection", "Content-Disposition", "Content-Encoding", "Content-Language",
            "Content-Length", "Content-Security-Policy", "Content-Type", "Date", "ETag", "Expires",
            "Keep-Alive", "Last-Modified", "Link", "Location", "Pragma", "Referrer-Policy",
            "Retry-After", "Server", "Set-Cookie", "Strict-Transport-Security",
            "Transfer-Encoding", "Vary", "Via", "WWW-Authenticate", "X-Content-Type-Options",
            "X-Frame-Options", "X-Powered-By", "X-Request-Id",
        ]
        var byLength: [[Known]] = []
        // HTTP/1.1 servers in front of HTTP/2 applications often write lower case.
        for name in names + names.map({ $0.lowercased() }) {
            while byLength.count <= name.utf8.count { byLength.append([]) }
            byLength[name.utf8.count].append(Known(name))
        }
        return byLength
    }()
}
