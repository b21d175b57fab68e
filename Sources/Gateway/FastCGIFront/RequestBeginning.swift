// The beginning of a request: its begin record and its parameters.
//
// libfcgi truncates a parameter at its first NUL, and ends the process if a length exceeds the available memory, so the
// parameters are validated here first. Pure. Invariant: libfcgi returns every parameter exactly as received.

struct RequestBeginning {
    /// The maximum number of bytes of all parameters, well above the limits on request heads.
    static let mostBytes = 256 << 10

    /// The request's number on the connection.
    var id: UInt16
    var role: UInt16
    /// Whether the web server will reuse the connection (FCGI_KEEP_CONN).
    var keepsConnection: Bool
    /// The encoded names and values with their lengths; nil if they exceeded `mostBytes`.
    var parameters: [UInt8]? = []

    /// The only role that is served.
    static let responder: UInt16 = 1

    /// Parses the content of a begin record; nil if it is invalid.
    init?(id: UInt16, content: some Collection<UInt8>) {
        let bytes = Array(content)
        guard id != 0, bytes.count == 8 else { return nil }
        self.id = id
        role = UInt16(bytes[0]) << 8 | UInt16(bytes[1])
        keepsConnection = bytes[2] & 1 != 0
    }

    mutating func add(_ bytes: UnsafeRawBufferPointer) {
        guard let count = parameters?.count, count <= Self.mostBytes - bytes.count else {
            return parameters = nil
        }
        parameters?.append(contentsOf: bytes)
    }

    /// Calls `body` with each parameter; returns false if a length exceeds the bytes that follow.
    func forEachParameter(
        _ body: (_ name: ParameterBytes, _ value: ParameterBytes) -> Void
    ) -> Bool {
        guard let parameters else { return true }
        return Self.forEachPair(in: parameters, body)
    }

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

    /// Removes and returns a length at the start: one byte below 128, otherwise 31 bits in four bytes.
    private static func length(_ rest: inout ParameterBytes) -> Int? {
        guard let first = rest.first else { return nil }
        guard first >= 0x80 else { return Int(take(1, off: &rest)[0]) }
        guard rest.count >= 4 else { return nil }
        return take(4, off: &rest).dropFirst().reduce(Int(first & 0x7F)) { $0 << 8 | Int($1) }
    }
}

// MARK: For libfcgi

extension RequestBeginning {
    /// Removes the parameters that libfcgi would change: those with a NUL, or with libfcgi's separator `=` in the name.
    ///
    /// - Returns: true if no parameter was removed; nil if the parameters are truncated.
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
        // The lengths may take more bytes than before.
        parameters = kept
        return false
    }

    private static func isSound(
        _ name: ParameterBytes,
        _ value: ParameterBytes
    ) -> Bool {
        // The value directly follows its name in memory.
        let both = ParameterBytes(start: name.baseAddress, count: name.count + value.count)
        return !both.has(0) && !name.has(UInt8(ascii: "="))
    }

    /// A begin record with the number 1, the parameters, and their end.
    var recordsForLibrary: [UInt8] {
        let parameters = parameters ?? []
        let size = RecordHeader.size
        var bytes: [UInt8] = []
        let records = 3 + parameters.count / RecordHeader.mostContent
        bytes.reserveCapacity(size + records * size + parameters.count)
        RecordHeader(type: RecordType.beginRequest, id: 1, count: 8).append(to: &bytes)
        // The role, and the flag that keeps libfcgi from closing the connection.
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
