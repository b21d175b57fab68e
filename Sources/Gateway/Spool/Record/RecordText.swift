// The text format of the creation, the completing request's fields and the stored response in a record; see
// spoolgate-spool(5), RECORDS.
//
// Field values may contain any byte that HTTP allows; in other values backslash, CR, LF and NUL are escaped. Invariant:
// reading returns exactly what was written, or an error.

import HTTPTypes
import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol

struct UnreadableRecord: Error, Equatable {
    enum Kind: Sendable {
        /// The record was damaged after it was written and is moved to `corrupt`.
        case damaged
        /// The record was never completely written, and no offset was acknowledged; the upload is removed.
        case unwritten
        /// A newer program wrote the record, which is left unchanged.
        case newer
    }

    /// A description of the fault, for the operator.
    var reason: String
    var kind = Kind.damaged

    /// `word` is the first unknown word in the record.
    static func newer(_ word: String) -> UnreadableRecord {
        UnreadableRecord(
            reason:
                "a newer version of spoolgate wrote it ('\(word)' is unknown); use that version",
            kind: .newer
        )
    }
}

extension UploadCreation {
    private static let firstLine: StaticString = "spoolgate-record 2"

    var recordText: [UInt8] {
        var writer = LineWriter()
        writer.add(line: Self.firstLine)
        var creation = self
        creation.visit(&writer)
        writer.add(head.fields)
        if !head.granted.isEmpty {
            writer.add([.granted: head.granted.map(\.rawName).joined(separator: ", ")])
        }
        writer.addSum(for: id)
        return writer.bytes
    }

    /// Returns the creation and its size in bytes, or nil if `bytes` end before the creation does.
    static func read(
        recordText bytes: ArraySlice<UInt8>,
        of id: UploadID
    ) throws(UnreadableRecord) -> (UploadCreation, Int)? {
        var reader = LineReader(bytes)
        guard let first = reader.line() else { return nil }
        guard first.equals(firstLine) else {
            let shown = String(decoding: first.prefix(40), as: UTF8.self)
            throw UnreadableRecord(reason: "its first line is '\(shown)'")
        }
        let start = reader.position
        var end = start
        var fields = HTTPFields()
        while true {
            let before = reader.position
            guard let line = reader.line() else { return nil }
            let (name, value) = LineReader.split(line)
            switch name {
            case "field": fields.append(try LineReader.field(value))
            case "sum":
                let covered = bytes[bytes.startIndex..<before]
                guard Checksum.isSum(value, of: covered, for: id) else {
                    throw UnreadableRecord(reason: "the creation's checksum does not match")
                }
                let creation = try UploadCreation(id, bytes[start..<end], fields)
                return (creation, reader.position - bytes.startIndex)
            default: end = reader.position
            }
        }
    }

    private init(
        _ id: UploadID,
        _ lines: ArraySlice<UInt8>,
        _ received: HTTPFields
    ) throws(UnreadableRecord) {
        var head = RequestHead(method: .post, target: "", fields: received)
        if let names = received.value(of: .granted) {
            head.granted = names.split(separator: ", ").compactMap { HTTPField.Name(String($0)) }
            head.fields.removeAll { $0.name == .granted }
        }
        self.init(id: id, route: "", head: head, created: .now)
        let unknown = lines.withUnsafeBufferPointer { bytes in
            var rows = RowReader(bytes)
            visit(&rows)
            return rows.next ?? rows.missing
        }
        if let unknown { throw .newer(unknown) }
        derive()
    }
}

extension HTTPField.Name {
    /// The line that lists the names of the fields that the authorizer has set or removed.
    ///
    /// No client can send such a field. Version 0.1.0 wrote only the names of credentials.
    fileprivate static let granted = made("spoolgate-set")
}

extension StoredResponse {
    private static let firstLine: StaticString = "spoolgate-response 2"

    func recordText(of id: UploadID) -> [UInt8] {
        var writer = LineWriter()
        writer.add(line: Self.firstLine)
        var status = "\(head.status.code) \(head.status.reasonPhrase)"
        writer.row("status", &status)
        writer.add(head.fields)
        // The last line before the content has the number of bytes, or "-" if the content is not kept.
        var count = content?.count
        writer.row("content", &count)
        writer.add(content: content ?? [])
        writer.addSum(for: id)
        return writer.bytes
    }

    /// Parses a stored response.
    ///
    /// `bytes` must contain nothing else.
    init(recordText bytes: [UInt8], of id: UploadID) throws(UnreadableRecord) {
        guard let text = LineWriter.verified(bytes, for: id) else {
            throw UnreadableRecord(reason: "the stored response's checksum does not match")
        }
        var reader = LineReader(text)
        let first = reader.line() ?? []
        guard first.equals(Self.firstLine) else {
            throw .newer(String(decoding: first.prefix(40), as: UTF8.self))
        }
        var status: HTTPResponse.Status?
        var fields = HTTPFields()
        while let line = reader.line() {
            let (name, value) = LineReader.split(line)
            switch name {
            case "status": status = Self.status(String(recordText: value))
            case "field": fields.append(try LineReader.field(value))
            case "content":
                let rest = text[reader.position...]
                let count = Int(String(decoding: value, as: UTF8.self))
                // An LF follows the content.
                guard let status, rest.count == (count ?? 0) + 1 else {
                    throw UnreadableRecord(reason: "the stored response is incomplete")
                }
                let content = count == nil ? nil : Array(rest.dropLast())
                self.init(head: ResponseHead(status: status, fields: fields), content: content)
                return
            default: throw .newer(name)
            }
        }
        throw UnreadableRecord(reason: "the stored response is incomplete")
    }

    /// Returns the status in the first bytes of a stored response, or nil if the bytes end before the status does.
    static func status(beginning bytes: [UInt8]) -> Int? {
        // The bytes may end anywhere after the number.
        var reader = LineReader((bytes + [UInt8(ascii: "\n")])[...])
        guard reader.line()?.equals(firstLine) == true, let line = reader.line()
        else { return nil }
        let (name, value) = LineReader.split(line)
        guard name == "status", value.contains(UInt8(ascii: " ")) else { return nil }
        return status(String(recordText: value))?.code
    }

    private static func status(_ text: String) -> HTTPResponse.Status? {
        let parts = text.split(separator: " ", maxSplits: 1, omittingEmptySubsequences: false)
        guard let code = parts.first.flatMap({ Int($0) }), (200...999).contains(code) else {
            return nil
        }
        return HTTPResponse.Status(
            code: code,
            reasonPhrase: parts.count > 1 ? String(parts[1]) : ""
        )
    }
}

extension HTTPFields {
    private static let firstLine: StaticString = "spoolgate-completion 2"

    /// Returns the completing request's fields as text with a checksum.
    func completionText(of id: UploadID) -> [UInt8] {
        var writer = LineWriter()
        writer.add(line: Self.firstLine)
        writer.add(self)
        writer.addSum(for: id)
        return writer.bytes
    }

    /// Parses the text of `completionText(of:)`, or returns nil if the text is invalid.
    init?(completionText bytes: [UInt8], of id: UploadID) {
        guard let text = LineWriter.verified(bytes, for: id) else { return nil }
        var reader = LineReader(text)
        guard reader.line()?.equals(Self.firstLine) == true else { return nil }
        self.init()
        while let line = reader.line() {
            let (name, value) = LineReader.split(line)
            guard name == "field", let field = try? LineReader.field(value) else { return nil }
            append(field)
        }
    }
}
