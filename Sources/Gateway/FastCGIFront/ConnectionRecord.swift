// Records that are about the connection and not about the request that is served.
//
// Pure.

/// Makes such records (FastCGI 1.0, sections 4.1, 4.2 and 5.5).
enum ConnectionRecord {
    /// An empty record of the error stream of request 1, the number that nginx uses: it means nothing, and a
    /// connection on which it comes is not kept.
    static let farewell = RecordHeader.record(RecordType.errors, 1, [])

    /// The end of a further request, which is not taken up: one at a time (FCGI_CANT_MPX_CONN).
    static func refusal(of id: UInt16) -> [UInt8] {
        RecordHeader.record(RecordType.endRequest, id, [0, 0, 0, 0, 1, 0, 0, 0])
    }

    /// The answer to a record with this type and content; nil where it is malformed.
    static func answer(to type: UInt8, _ content: [UInt8]) -> [UInt8]? {
        guard type == RecordType.getValues else {
            return RecordHeader.record(RecordType.unknownType, 0, [type, 0, 0, 0, 0, 0, 0, 0])
        }
        var known: [UInt8] = []
        let isSound = RequestBeginning.forEachPair(in: content) { name, _ in
            guard name.elementsEqual("FCGI_MPXS_CONNS".utf8) else { return }
            known += [UInt8(name.count), 1] + name + [UInt8(ascii: "0")]
        }
        // Each byte of the content asks for more than one at most.
        guard isSound, known.count <= RecordHeader.mostContent else { return nil }
        return RecordHeader.record(RecordType.getValuesResult, 0, known)
    }
}
