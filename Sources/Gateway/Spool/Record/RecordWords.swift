// Converts a state to the words of a slot's line and back; see spoolgate-spool(5), RECORDS.
//
// Invariant: a line with an unknown word is never used.

import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol

extension RecordState {
    /// The maximum size of a stored reason in bytes of UTF-8.
    static let reasonLimit = 200

    /// Returns the slot's position in the file; `isPromised` selects the slots used once an offset is durable.
    func position(isPromised: Bool) -> Int64 {
        (isPromised ? RecordSlots.promised : RecordSlots.early)[Int(sequence % 2)]
    }

    /// The words of a state except the reason, which is the last word, in the order of writing.
    private mutating func visit(_ words: inout (some RecordRows & ~Copyable)) {
        words.row("sequence", &sequence)
        words.row("state", &queue)
        words.row("writer", &writer)
        words.row("durable", &durable)
        words.row("length", &length)
        words.row("attempts", &attempts)
        words.row("response", &responseWord)
        words.row("completion", ifSet: &completion)
        words.row("whole", ifSet: &whole)
        words.row("next", ifSet: &next)
        words.row("until", ifSet: &until)
        words.row("then", ifSet: &then)
        words.row("cause", ifSet: &cause)
        words.row("verified", ifSet: &verified)
        words.row("final", ifSet: &final)
        words.row("accepted", ifSet: &accepted)
    }

    private static let reasonName: StaticString = "reason="

    private var responseWord: ResponseWord? {
        get { response.map { .part($0) } ?? status.map { .status($0) } }
        set {
            (response, status) = (nil, nil)
            switch newValue {
            case .part(let part): response = part
            case .status(let code): status = code
            case nil: break
            }
        }
    }

    func slot(for id: UploadID) -> [UInt8] {
        var words = LineWriter(.words)
        var state = self
        state.visit(&words)
        words.builder.put(Self.reasonName)
        let room = RecordSlots.size - 1 - Checksum.fieldSize - words.builder.count
        if let reason {
            words.builder.put(Self.stored(reason, in: min(room, Self.reasonLimit)).span.bytes)
        }
        let sum = words.builder.withBytes { Checksum.sum(of: $0, for: id) }
        words.builder.put(Checksum.mark)
        Checksum.put(sum, into: &words.builder)
        words.builder.put(
            UInt8(ascii: " "),
            times: RecordSlots.size - 1 - words.builder.count
        )
        words.builder.put(UInt8(ascii: "\n"))
        return words.bytes
    }

    /// Reads the words of a line; returns the first unknown word, or nil if all are known.
    mutating func take(_ line: ArraySlice<UInt8>) -> String? {
        line.withUnsafeBufferPointer { line in
            var words = RowReader(line, .words)
            visit(&words)
            guard words.rest.hasPrefix(Self.reasonName) else { return words.next }
            let text = words.rest.dropFirst(Self.reasonName.utf8CodeUnitCount)
            reason = text.isEmpty ? nil : String(decoding: text, as: UTF8.self)
            return words.missing
        }
    }

    /// Returns a reason as one line of at most `room` bytes; a longer reason is cut between characters and ends in
    /// `...`.
    private static func stored(_ reason: String, in room: Int) -> [UInt8] {
        var bytes: [UInt8] = []
        var cut = 0
        for scalar in reason.unicodeScalars {
            let character = Array((scalar.isUnprintable ? " " : String(scalar)).utf8)
            guard bytes.count + character.count <= room else {
                return Array(bytes.prefix(cut)) + Array("...".utf8).prefix(room)
            }
            bytes += character
            if bytes.count + 3 <= room { cut = bytes.count }
        }
        return bytes
    }
}

/// The value of the word `response`.
private enum ResponseWord: RecordValue {
    case part(Range<Int64>)
    case status(Int)

    func put(into text: inout ByteBuilder) {
        switch self {
        case .part(let part): part.put(into: &text)
        case .status(let code): code.put(into: &text)
        }
    }

    init?(recordText text: some Collection<UInt8>) {
        if let part = Range<Int64>(recordText: text) {
            self = .part(part)
        } else if let code = Int(recordText: text), (200...999).contains(code) {
            self = .status(code)
        } else {
            return nil
        }
    }
}
