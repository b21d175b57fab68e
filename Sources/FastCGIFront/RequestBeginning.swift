// What comes before a request's content: FastCGI records with its begin and its parameters.
//
// libfcgi could read them as well, but keeps of each parameter what is before its first NUL, and ends the
// process where a length is beyond the memory there is. Invariants: no number that the peer sends decides
// how much memory is taken; a parameter's value is all of it.

import Posix

/// The begin of one request and its parameters, as received.
struct RequestBeginning {
    /// Most bytes of parameters that are kept; far above what heads may have.
    static let mostBytes = 256 << 10

    /// Its number on the connection, which the records of the answer carry.
    var id: UInt16
    /// What the web server wants of us; 1: a response.
    var role: UInt16
    /// Names and values with their lengths before them; nil: there were more than `mostBytes`.
    var parameters: [UInt8]?

    /// Responder, the role that is served.
    static let responder: UInt16 = 1

    /// Receives a request's beginning; nil where none comes, or what comes is no FastCGI.
    static func receive(from connection: Connection) -> RequestBeginning? {
        var reading = Reading(connection)
        return reading.request()
    }

    /// The parameters one after the other.
    ///
    /// - Returns: false where they are cut off: a length says more than there is.
    func forEachParameter(
        _ body: (_ name: UnsafeBufferPointer<UInt8>, _ value: UnsafeBufferPointer<UInt8>) -> Void
    ) -> Bool {
        (parameters ?? []).withUnsafeBufferPointer { bytes in
            var rest = bytes[...]
            while !rest.isEmpty {
                guard let nameCount = Self.length(&rest), let valueCount = Self.length(&rest),
                    nameCount <= rest.count, valueCount <= rest.count - nameCount
                else { return false }
                let value = rest.dropFirst(nameCount)
                body(
                    UnsafeBufferPointer(rebasing: rest.prefix(nameCount)),
                    UnsafeBufferPointer(rebasing: value.prefix(valueCount))
                )
                rest = value.dropFirst(valueCount)
            }
            return true
        }
    }

    /// Takes a length off: one byte below 128, else 31 bits in four bytes.
    private static func length(_ rest: inout Slice<UnsafeBufferPointer<UInt8>>) -> Int? {
        guard let first = rest.popFirst() else { return nil }
        guard first >= 0x80 else { return Int(first) }
        guard rest.count >= 3 else { return nil }
        defer { rest = rest.dropFirst(3) }
        return rest.prefix(3).reduce(Int(first & 0x7F)) { $0 << 8 | Int($1) }
    }
}

/// Types of records (FastCGI 1.0, section 8).
private enum RecordType {
    static let beginRequest: UInt8 = 1
    static let endRequest: UInt8 = 3
    static let parameters: UInt8 = 4
    static let getValues: UInt8 = 9
    static let getValuesResult: UInt8 = 10
    static let unknownType: UInt8 = 11
}

/// A connection of which the records before the content are read.
private struct Reading {
    private struct Header {
        var type: UInt8
        var id: UInt16
        var count: Int
        var padding: Int

        init?(_ bytes: ArraySlice<UInt8>) {
            let bytes = Array(bytes)
            guard bytes.count == Self.size, bytes[0] == 1 else { return nil }
            type = bytes[1]
            id = UInt16(bytes[2]) << 8 | UInt16(bytes[3])
            count = Int(bytes[4]) << 8 | Int(bytes[5])
            padding = Int(bytes[6])
        }

        static let size = 8
    }

    private let connection: Connection
    private var buffer: [UInt8] = []
    private var begun: RequestBeginning?

    init(_ connection: Connection) { self.connection = connection }

    /// Reads records up to the one that ends the parameters, and none behind it.
    mutating func request() -> RequestBeginning? {
        guard receive(Header.size) else { return nil }
        var next = Header(buffer[...])
        while let header = next {
            if let begun, header.type == RecordType.parameters, header.id == begun.id,
                header.count == 0
            {
                // What pads it is behind it.
                return header.padding == 0 || receive(header.padding) ? begun : nil
            }
            // Where the request has begun, another record follows in any case.
            let isFollowed =
                header.type == RecordType.beginRequest || header.type == RecordType.parameters
            let count = header.count + header.padding
            guard receive(count + (isFollowed ? Header.size : 0)) else { return nil }
            guard take(header) else { return nil }
            if isFollowed {
                next = Header(buffer[count...])
            } else {
                guard receive(Header.size) else { return nil }
                next = Header(buffer[...])
            }
        }
        return nil
    }

    /// Fills the buffer with exactly so many bytes.
    private mutating func receive(_ count: Int) -> Bool {
        // A record's content and padding at most, and the next header.
        buffer = [UInt8](repeating: 0, count: count)
        return buffer.withUnsafeMutableBytes { connection.receive(into: $0) }
    }

    /// Takes a record whose content is in the buffer; false where it has no business here.
    private mutating func take(_ header: Header) -> Bool {
        let content = buffer[..<header.count]
        if header.type == RecordType.beginRequest { return begin(header.id, content) }
        if header.id == 0 { return manage(header.type, content) }
        guard let begun, header.id == begun.id else {
            // Of a request that we did not take up.
            return begun != nil
        }
        guard header.type == RecordType.parameters else { return false }
        let isOver = (begun.parameters?.count ?? .max) > RequestBeginning.mostBytes - content.count
        if isOver { self.begun?.parameters = nil } else { self.begun?.parameters? += content }
        return true
    }

    private mutating func begin(_ id: UInt16, _ content: ArraySlice<UInt8>) -> Bool {
        guard id != 0, content.count == 8 else { return false }
        guard begun == nil else {
            // One request at a time: FCGI_CANT_MPX_CONN.
            return connection.send(
                Self.record(RecordType.endRequest, id, [0, 0, 0, 0, 1, 0, 0, 0])
            )
        }
        begun = RequestBeginning(
            id: id,
            role: UInt16(content[0]) << 8 | UInt16(content[1]),
            parameters: []
        )
        return true
    }

    /// Answers a record that is about the connection.
    private func manage(_ type: UInt8, _ content: ArraySlice<UInt8>) -> Bool {
        guard type == RecordType.getValues else {
            return connection.send(
                Self.record(RecordType.unknownType, 0, [type, 0, 0, 0, 0, 0, 0, 0])
            )
        }
        var asked: [UInt8] = []
        let query = RequestBeginning(id: 0, role: 0, parameters: Array(content))
        let isSound = query.forEachParameter { name, _ in
            guard name.elementsEqual("FCGI_MPXS_CONNS".utf8) else { return }
            asked += [UInt8(name.count), 1] + name + [UInt8(ascii: "0")]
        }
        // Each byte of the content asks for more than one at most.
        guard isSound, asked.count <= Int(UInt16.max) else { return false }
        return connection.send(Self.record(RecordType.getValuesResult, 0, asked))
    }

    private static func record(_ type: UInt8, _ id: UInt16, _ content: [UInt8]) -> [UInt8] {
        [1, type, UInt8(id >> 8), UInt8(id & 0xFF)]
            + [UInt8(content.count >> 8), UInt8(content.count & 0xFF), 0, 0] + content
    }
}
