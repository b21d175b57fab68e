// The reader of golden transcripts, exchanges as text for review without Swift. It checks only the grammar.
//
//     # title of the rule.  its source
//     limits: max-size=100 max-age=3600        settings of the whole file: `name: key=value …`
//     spool: <id> offset=5 length=10 receiving  an upload before the request, or after it; `accepted` after
//                                               the phase: its client received 202; `tus`: tus created it,
//                                               `part`: as a part; `status=422`: the status of its stored
//                                               response (default 201)
//     > PATCH /files/upload-resource/<id>       the request's header section, an empty `>` line, its content
//     > Upload-Offset: 3
//     ^> POST /files hello                      the request to the upstream: method, target, content
//     ^ 200                                     the upstream's response
//     ^ content: done
//     < 409                                     the whole response; another status begins another
//     < Upload-Offset: 5
//     < problem: <type> <member>=<value> …      stands for Content-Type and content
//     < Upload-Expires: +3600                   a date, in seconds from the present
//     < content: done
//     = break off                               the connection ends without a response
//
// `Transfer-Encoding: chunked` makes the length unknown; `Content-Length` stands for content not shown.

import HTTPTypes
package import SpoolgateUploadProtocol

/// One transcript file.
package struct Transcript: Sendable, CustomStringConvertible {
    /// The rule and its source, from the first comment line.
    package private(set) var title = ""
    /// The settings lines: name, then keys and values.
    package private(set) var settings: [String: [String: String]] = [:]
    /// The uploads before the first request.
    package private(set) var uploads: [SpoolLine] = []
    package private(set) var exchanges: [Exchange] = []

    package var description: String { title }

    /// The upload of one `spool:` line.
    package struct SpoolLine: Sendable, Equatable {
        package var id: String
        /// Nil for `gone`.
        package var state: UploadState?
    }

    /// One request and its expected effects.
    package struct Exchange: Sendable {
        package var request: RequestHead
        /// As far as shown.
        package var content: [UInt8] = []
        /// Whether its fields state the content's length, or that it is unknown.
        fileprivate var isFramed = false
        package var upstream: UpstreamAnswer?
        /// In order: `^>` lines, `<` lines with the fields of each response sorted, `=` lines.
        package var expected: [String] = []
        /// After the request.
        package var uploads: [SpoolLine] = []
    }

    /// The upstream's response.
    package struct UpstreamAnswer: Sendable {
        package var status: Int
        /// As `name: value`.
        package var fields: [String] = []
        package var content = ""

        /// Creates a response without fields and content.
        package init(status: Int) { self.status = status }
    }

    /// A line does not match the grammar.
    package struct Malformed: Error {
        /// From 1.
        package var line: Int
        package var text: String
    }

    /// Reads a transcript.
    package init(_ text: String) throws {
        var inContent = false
        let lines = text.split(separator: "\n", omittingEmptySubsequences: false)
        for (index, line) in lines.enumerated() {
            let malformed = Malformed(line: index + 1, text: String(line))
            guard let mark = line.first else { continue }
            let rest = line.dropFirst().drop { $0 == " " }
            switch mark {
            case "#":
                if title.isEmpty { title = String(rest) }
            case ">":
                if exchanges.last.map({ !$0.expected.isEmpty }) ?? true {
                    inContent = false
                    exchanges.append(Exchange(request: try Transcript.start(rest, malformed)))
                } else if rest.isEmpty, !inContent {
                    inContent = true
                } else if inContent {
                    try addContent(line.dropFirst(2), malformed)
                } else {
                    try addRequestField(rest, malformed)
                }
            case "^" where line.hasPrefix("^> "), "<", "=":
                try last(malformed) { $0.expected.append(String(line)) }
            case "^":
                try addUpstream(rest, malformed)
            default:
                try addSetting(line, malformed)
            }
        }
        guard !title.isEmpty, !exchanges.isEmpty else { throw Malformed(line: 0, text: "empty") }
        for index in exchanges.indices {
            // The order of fields with different names has no meaning.
            let groups = exchanges[index].expected.reduce(into: [[String]]()) { groups, line in
                let isField = line.hasPrefix("< ") && Int(line.dropFirst(2)) == nil
                if isField, !groups.isEmpty {
                    groups[groups.count - 1].append(line)
                } else {
                    groups.append([line])
                }
            }
            exchanges[index].expected = groups.flatMap { $0.prefix(1) + $0.dropFirst().sorted() }
        }
    }

    private mutating func last(_ malformed: Malformed, _ change: (inout Exchange) throws -> Void)
        throws
    {
        guard !exchanges.isEmpty else { throw malformed }
        try change(&exchanges[exchanges.count - 1])
    }

    private static func start(_ rest: Substring, _ malformed: Malformed) throws -> RequestHead {
        let parts = rest.split(separator: " ")
        guard parts.count == 2, let method = HTTPRequest.Method(rawValue: String(parts[0])) else {
            throw malformed
        }
        return RequestHead(method: method, target: String(parts[1]))
    }

    private static func field(_ rest: Substring, _ malformed: Malformed) throws -> HTTPField {
        guard let colon = rest.firstIndex(of: ":"),
            let name = HTTPField.Name(String(rest[..<colon]))
        else { throw malformed }
        let value = rest[rest.index(after: colon)...].drop { $0 == " " }
        return HTTPField(name: name, value: String(value))
    }

    private mutating func addRequestField(_ rest: Substring, _ malformed: Malformed) throws {
        let field = try Transcript.field(rest, malformed)
        try last(malformed) { exchange in
            switch field.name {
            case .contentLength:
                guard let count = Int64(field.value) else { throw malformed }
                exchange.request.contentLength = .known(count)
                exchange.isFramed = true
            case .transferEncoding:
                exchange.isFramed = true
            default:
                exchange.request.fields.append(field)
            }
        }
    }

    private mutating func addContent(_ text: Substring, _ malformed: Malformed) throws {
        try last(malformed) { exchange in
            if !exchange.content.isEmpty { exchange.content.append(UInt8(ascii: "\n")) }
            exchange.content += Array(text.utf8)
            if !exchange.isFramed {
                exchange.request.contentLength = .known(Int64(exchange.content.count))
            }
        }
    }

    private mutating func addUpstream(_ rest: Substring, _ malformed: Malformed) throws {
        try last(malformed) { exchange in
            if let code = Int(rest), (200..<600).contains(code) {
                exchange.upstream = UpstreamAnswer(status: code)
            } else if rest.hasPrefix("content: ") {
                exchange.upstream?.content = String(rest.dropFirst(9))
            } else {
                exchange.upstream?.fields.append(String(rest))
            }
        }
    }

    private mutating func addSetting(_ line: Substring, _ malformed: Malformed) throws {
        let words = line.split(separator: " ")
        guard let name = words.first, name.last == ":" else { throw malformed }
        var values: [String: String] = [:]
        var flags: [String] = []
        for word in words.dropFirst() {
            let pair = word.split(separator: "=", maxSplits: 1)
            if pair.count == 2 {
                values[String(pair[0])] = String(pair[1])
            } else {
                flags.append(String(word))
            }
        }
        guard name == "spool:" else {
            settings[String(name.dropLast())] = values
            return
        }
        let kinds = Set(flags.dropFirst(2))
        guard flags.count >= 2, kinds.isSubset(of: ["accepted", "tus", "part"]) else {
            throw malformed
        }
        var upload = SpoolLine(
            id: flags[0],
            state: try Transcript.state(flags[1], values, malformed)
        )
        upload.state?.isAccepted = kinds.contains("accepted")
        if kinds.contains("tus") { upload.state?.kind.family = .tus }
        upload.state?.kind.isPart = kinds.contains("part")
        if exchanges.isEmpty {
            uploads.append(upload)
        } else {
            try last(malformed) { $0.uploads.append(upload) }
        }
    }

    private static func state(_ phase: String, _ values: [String: String], _ malformed: Malformed)
        throws -> UploadState?
    {
        if phase == "gone" { return nil }
        guard let phase = UploadState.Phase(rawValue: phase),
            let offset = values["offset"].flatMap({ Int64($0) })
        else { throw malformed }
        return UploadState(
            offset: offset,
            length: values["length"].flatMap { Int64($0) },
            phase: phase,
            finalStatus: values["status"].flatMap { Int($0) }
        )
    }
}
