// What comes before a request's content: its begin and its parameters.
//
// libfcgi takes the parameters apart, but keeps of each what is before its first NUL, and ends the process
// where a length is beyond the memory there is: what it gets was looked through here. Pure. Invariant: libfcgi
// gives back every parameter that it is handed as it was received.

/// The begin of one request and its parameters, as received.
struct RequestBeginning {
    /// Most bytes of parameters that are kept; far above what heads may have.
    static let mostBytes = 256 << 10

    /// Its number on the connection, which the records of the answer carry.
    var id: UInt16
    /// What the web server wants of us; 1: a response.
    var role: UInt16
    /// Whether the web server wants to send another request on the connection (FCGI_KEEP_CONN).
    var keepsConnection: Bool
    /// Names and values with their lengths before them; nil: there were more than `mostBytes`.
    var parameters: [UInt8]? = []

    /// Responder, the role that is served.
    static let responder: UInt16 = 1

    /// What the records of a begin say; nil where it is none.
    init?(id: UInt16, content: some Collection<UInt8>) {
        let bytes = Array(content)
        guard id != 0, bytes.count == 8 else { return nil }
        self.id = id
        role = UInt16(bytes[0]) << 8 | UInt16(bytes[1])
        keepsConnection = bytes[2] & 1 != 0
    }

    /// Adds parameters in the order they come.
    mutating func add(_ bytes: UnsafeRawBufferPointer) {
        guard let count = parameters?.count, count <= Self.mostBytes - bytes.count else {
            return parameters = nil
        }
        parameters?.append(contentsOf: bytes)
    }

    /// The parameters one after the other.
    ///
    /// - Returns: false where they are cut off: a length says more than there is.
    func forEachParameter(
        _ body: (_ name: ParameterBytes, _ value: ParameterBytes) -> Void
    ) -> Bool {
        guard let parameters else { return true }
        return Self.forEachPair(in: parameters, body)
    }

    /// The same, of any pairs of names and values.
    static func forEachPair(
        in bytes: [UInt8],
        _ body: (_ name: ParameterBytes, _ value: ParameterBytes) -> Void
    ) -> Bool {
        bytes.withUnsafeBufferPointer { bytes in
            var rest = bytes
            while !rest.isEmpty {
                guard let nameCount = length(&rest), let valueCount = length(&rest),
                    nameCount <= rest.count, valueCount <= rest.count - nameCount
                else { return false }
                let name = take(nameCount, off: &rest)
                body(name, take(valueCount, off: &rest))
            }
            return true
        }
    }

    private static func take(
        _ count: Int,
        off rest: inout ParameterBytes
    ) -> ParameterBytes {
        defer { rest = ParameterBytes(rebasing: rest[count...]) }
        return ParameterBytes(rebasing: rest[..<count])
    }

    /// Takes a length off: one byte below 128, else 31 bits in four bytes.
    private static func length(_ rest: inout ParameterBytes) -> Int? {
        guard let first = rest.first else { return nil }
        guard first >= 0x80 else { return Int(take(1, off: &rest)[0]) }
        guard rest.count >= 4 else { return nil }
        return take(4, off: &rest).dropFirst().reduce(Int(first & 0x7F)) { $0 << 8 | Int($1) }
    }
}

// MARK: For libfcgi

extension RequestBeginning {
    /// Leaves out the parameters that libfcgi would change: those with a NUL, which it takes for the end,
    /// or with the sign that it puts between name and value in the name.
    ///
    /// - Returns: whether none was left out; nil where they are cut off.
    mutating func keepSoundParameters() -> Bool? {
        var isSound = true
        let isWhole = forEachParameter { name, value in
            isSound = isSound && Self.isSound(name, value)
        }
        guard isWhole else { return nil }
        guard !isSound, let all = parameters else { return true }
        var kept: [UInt8] = []
        _ = Self.forEachPair(in: all) { name, value in
            guard Self.isSound(name, value) else { return }
            for count in [name.count, value.count] {
                withUnsafeBytes(of: (UInt32(count) | 1 << 31).bigEndian) {
                    kept.append(contentsOf: $0)
                }
            }
            kept.append(contentsOf: name)
            kept.append(contentsOf: value)
        }
        // Lengths may take more room than they did.
        parameters = kept
        return false
    }

    private static func isSound(
        _ name: ParameterBytes,
        _ value: ParameterBytes
    ) -> Bool {
        // The value lies right behind its name.
        let both = ParameterBytes(start: name.baseAddress, count: name.count + value.count)
        return !both.has(0) && !name.has(UInt8(ascii: "="))
    }

    /// The begin of a responder's request with the number 1, the parameters, and their end.
    var recordsForLibrary: [UInt8] {
        let parameters = parameters ?? []
        let size = RecordHeader.size
        var bytes: [UInt8] = []
        let records = 3 + parameters.count / RecordHeader.mostContent
        bytes.reserveCapacity(size + records * size + parameters.count)
        RecordHeader(type: RecordType.beginRequest, id: 1, count: 8).append(to: &bytes)
        // The role, and that the connection is to be kept: closing it is not libfcgi's business.
        bytes += [0, 1, 1, 0, 0, 0, 0, 0]
        var rest = parameters[...]
        while !rest.isEmpty {
            let part = rest.prefix(RecordHeader.mostContent)
            RecordHeader(type: RecordType.parameters, id: 1, count: part.count).append(to: &bytes)
            bytes.append(contentsOf: part)
            rest = rest.dropFirst(part.count)
        }
        RecordHeader(type: RecordType.parameters, id: 1, count: 0).append(to: &bytes)
        return bytes
    }
}
