// Records that concern the connection rather than the request being served.
//
// Pure.

enum ConnectionRecord {
    /// An empty record of the error stream of request 1, the number that nginx uses.
    ///
    /// nginx does not keep a connection on which this record arrives.
    static let farewell = RecordHeader.record(RecordType.errors, 1, [])

    /// Returns the record that refuses a concurrent request (FCGI_CANT_MPX_CONN).
    static func refusal(of id: UInt16) -> [UInt8] {
        RecordHeader.record(RecordType.endRequest, id, [0, 0, 0, 0, 1, 0, 0, 0])
    }

    /// Returns the response to a management record of this type; nil if its content is malformed.
    static func answer(to type: UInt8, _ content: [UInt8]) -> [UInt8]? {
        guard type == RecordType.getValues else {
            return RecordHeader.record(RecordType.unknownType, 0, [type, 0, 0, 0, 0, 0, 0, 0])
        }
        var known: [UInt8] = []
        let isSound = RequestBeginning.forEachPair(in: content) { name, _ in
            guard name.elementsEqual("FCGI_MPXS_CONNS".utf8) else { return }
            known += [UInt8(name.count), 1] + name + [UInt8(ascii: "0")]
        }
        // The content may request a value so often that the values do not fit into a record.
        guard isSound, known.count <= RecordHeader.mostContent else { return nil }
        return RecordHeader.record(RecordType.getValuesResult, 0, known)
    }
}
