// FastCGI parameters become a request head and what the web server says of it.
//
// Pure: bytes in, values out. It decides nothing about uploads. Invariant: a parameter that begins
// with HTTP_ is the client's word and becomes a field, every other one is the operator's and never
// does, but for CONTENT_TYPE, which is the client's under another name.

import HTTPTypes
package import SpoolgateExchange
import SpoolgatePosix
import SpoolgateTextFormats
package import SpoolgateUploadProtocol

/// The parameters of one request, added one by one, then read as a whole.
package struct RequestParameters: ~Copyable {
    /// How much of a request head is taken; the defaults are above what web servers let through by default.
    package struct Limits: Sendable, Equatable {
        /// Field lines.
        package var fields = 200
        /// Bytes of all field names and values together.
        package var fieldBytes = 64 * 1024
        /// Bytes of the request target.
        package var targetBytes = 32 * 1024
    }

    private let limits: Limits
    private var fields = HTTPFields()
    private var fieldCount = 0
    private var fieldBytes = 0
    /// How many of the fields the web server has set by itself.
    private var configuredCount = 0
    /// The first one counts; a list, since that is one word where there is none.
    private var refusals: [Refusal] = []
    private var method = Word<HTTPRequest.Method>.missing
    private var target = Word<String>.missing
    private var contentLength: ContentLength = .unknown
    private var context = ExchangeContext()
    // What becomes faults, once all parameters are here.
    private var isMisconfigured = false
    private var isOriginThere = false
    private var isBuffered = false
    /// Whether the web server is an nginx, and whether it told what it does with content.
    private var isNginx = false
    private var isBufferingTold = false

    /// A word without which there is no request.
    private enum Word<Value> {
        case missing
        indirect case refused(Refusal)
        case valid(Value)

        var isMissing: Bool { if case .missing = self { true } else { false } }
    }

    /// Starts with no parameter.
    package init(limits: Limits = Limits()) {
        self.limits = limits
        fields.reserveCapacity(8)
    }

    /// The head of a request with these parameters, `NAME=value` each, in the order received.
    package static func read(
        _ parameters: [[UInt8]],
        limits: Limits = Limits()
    ) -> (head: Result<RequestHead, Refusal>, context: ExchangeContext) {
        var all = RequestParameters(limits: limits)
        for parameter in parameters {
            parameter.withUnsafeBufferPointer { bytes in
                guard let equals = bytes.firstIndex(of: UInt8(ascii: "=")) else { return }
                all.add(
                    UnsafeBufferPointer(rebasing: bytes[..<equals]),
                    UnsafeBufferPointer(rebasing: bytes[(equals + 1)...])
                )
            }
        }
        return all.read()
    }

    /// Adds the parameters of a request.
    ///
    /// - Returns: false where they are cut off, or libfcgi does not take them.
    /// - Throws: `SystemError` when there is no descriptor or memory to hand them to libfcgi; then none was
    ///   added.
    mutating func take(
        _ beginning: inout RequestBeginning,
        takenApartBy request: borrowing FastCGIRequest
    ) throws(SystemError) -> Bool {
        if beginning.role != RequestBeginning.responder { refuse(.wrongRole) }
        if beginning.parameters == nil { refuse(.fieldsTooLarge(limit: limits.fieldBytes)) }
        guard let isSound = beginning.keepSoundParameters() else { return false }
        // No configuration has a NUL: it is a client's, in a value that the web server takes from it.
        if !isSound { refuse(.malformed(reason: "a parameter contains NUL or has = in its name")) }
        return try request.forEachParameter(of: beginning) { add($0, $1) }
    }

    /// Adds one parameter.
    ///
    /// Of several operator's parameters with one name the last counts, as in the configurations
    /// they come from; of the client's all do, in order.
    package mutating func add(_ name: ParameterBytes, _ value: ParameterBytes) {
        if name.hasPrefix("HTTP_") {
            addField(ParameterBytes(rebasing: name[5...]), value)
        } else {
            // A web server sends what it was configured to before what its client has sent.
            configuredCount = fields.count
            addOperatorWord(name, value)
        }
    }

    /// The head, or the first reason why it is none, and the operator's words.
    package consuming func read() -> (head: Result<RequestHead, Refusal>, context: ExchangeContext)
    {
        let head = readHead()
        var context = context
        let isIncomplete = refusals.isEmpty && (method.isMissing || target.isMissing)
        if isMisconfigured || isIncomplete { context.faults.insert(.noMethod) }
        if !isOriginThere { context.faults.insert(.noOrigin) }
        if context.badOrigin != nil { context.faults.insert(.badOrigin) }
        if isBuffered { context.faults.insert(.buffered) }
        // Of nginx's own parameters, which are not ours, SERVER_SOFTWARE is one.
        if isNginx, !isBufferingTold { context.faults.insert(.bufferingUntold) }
        return (head, context)
    }

    private func readHead() -> Result<RequestHead, Refusal> {
        if let refusal = refusals.first { return .failure(refusal) }
        switch (method, target) {
        case (.missing, _): return .failure(.missing("REQUEST_METHOD"))
        case (_, .missing): return .failure(.missing("REQUEST_URI"))
        case (.refused(let refusal), _), (_, .refused(let refusal)): return .failure(refusal)
        case (.valid(let method), .valid(let target)):
            var fields = fields
            // The type of the content comes under such a name, and is the client's word: mostly it is the only one.
            let isTypeAlone = configuredCount == 1 && fields[0].name == .contentType
            if configuredCount > 0, !isTypeAlone {
                fields.keepFromConnection(first: configuredCount)
            }
            return .success(
                RequestHead(
                    method: method,
                    target: target,
                    fields: fields,
                    contentLength: contentLength
                )
            )
        }
    }

    private mutating func refuse(_ refusal: Refusal) {
        if refusals.isEmpty { refusals = [refusal] }
    }
}

// MARK: The client's words

extension RequestParameters {
    /// `name` is what follows `HTTP_`.
    private mutating func addField(_ name: ParameterBytes, _ value: ParameterBytes) {
        switch ClientFieldNames.all.find(name) {
        case .replaced: return
        case .name(let known): addField(known, value)
        case .unknown:
            // The gateway's own.
            if name.isReserved { return }
            let lowered = String(unsafeUninitializedCapacity: name.count) { text in
                for (index, byte) in name.enumerated() { text[index] = byte.loweredFieldNameByte }
                return name.count
            }
            // Not `parsed:`, which takes `:path`; such a name among the fields ends the process.
            addField(HTTPField.Name(lowered), value, nameCount: name.count)
        }
    }

    private mutating func addField(
        _ name: HTTPField.Name?,
        _ value: ParameterBytes,
        nameCount: Int? = nil
    ) {
        fieldCount += 1
        fieldBytes += (nameCount ?? name?.canonicalName.utf8.count ?? 0) + value.count
        guard fieldCount <= limits.fields else {
            return refuse(.tooManyFields(limit: limits.fields))
        }
        guard fieldBytes <= limits.fieldBytes else {
            return refuse(.fieldsTooLarge(limit: limits.fieldBytes))
        }
        guard let name else { return refuse(.malformed(reason: "a field name is not a token")) }
        let trimmed = value.trimmed
        guard trimmed.allSatisfy(\.isFieldValueByte) else {
            return refuse(.malformed(reason: "a field value contains a control character"))
        }
        // The same either way; of bytes that are no text the library keeps a list.
        fields.append(
            trimmed.isASCII
                ? HTTPField(name: name, value: trimmed.text) : HTTPField(name: name, value: trimmed)
        )
    }

    /// `CONTENT_LENGTH`: nothing, an empty value and `-1` all mean that the length is not known.
    private mutating func setContentLength(_ value: ParameterBytes) {
        let digits = value.trimmed
        guard !digits.isEmpty, !digits.equals("-1") else { return contentLength = .unknown }
        guard let length = Int64(digits: digits) else {
            return refuse(.malformed(reason: "Content-Length is not a valid number"))
        }
        contentLength = .known(length)
    }
}

// MARK: The operator's words

extension RequestParameters {
    private mutating func addOperatorWord(_ name: ParameterBytes, _ value: ParameterBytes) {
        switch name {
        case "REQUEST_METHOD": method = Self.method(value)
        case "REQUEST_URI": target = target(value)
        case "CONTENT_LENGTH": setContentLength(value)
        case "CONTENT_TYPE":
            guard !value.isEmpty, fields.value(of: .contentType) == nil else { return }
            addField(Self.contentType, value)
        case "FCGI_ROLE":
            guard !value.equals("RESPONDER") else { return }
            isMisconfigured = true
            refuse(.wrongRole)
        case "REMOTE_ADDR": context.remoteAddress = word(name, value)
        case "REQUEST_SCHEME": context.scheme = word(name, value)
        case "SPOOLGATE_ROUTE": context.route = word(name, value)
        case "SPOOLGATE_OWNER": context.owner = word(name, value).map { ExactText($0) }
        case "SPOOLGATE_ORIGIN": setOrigin(value)
        case "SPOOLGATE_INTERIM": setInterimStatuses(name, value)
        case "SERVER_SOFTWARE": isNginx = value.hasPrefix("nginx")
        case "SPOOLGATE_BODY_FILE":
            isBufferingTold = true
            isBuffered = !value.isEmpty
        default: break
        }
    }

    /// Its name in lower case, as all names of a request's fields here.
    private static let contentType = HTTPField.Name("content-type")

    private static func method(_ value: ParameterBytes) -> Word<HTTPRequest.Method> {
        guard !value.isEmpty else { return .missing }
        guard value.allSatisfy(\.isTokenByte), let method = HTTPRequest.Method(rawValue: value.text)
        else { return .refused(.malformed(reason: "the method is not a token")) }
        return .valid(method)
    }

    private func target(_ value: ParameterBytes) -> Word<String> {
        guard !value.isEmpty else { return .missing }
        guard value.count <= limits.targetBytes else {
            return .refused(.targetTooLong(limit: limits.targetBytes))
        }
        guard value.first == UInt8(ascii: "/") || value.equals("*"),
            value.allSatisfy({ $0 > 0x20 && $0 != 0x7F && $0 != 0x23 })
        else {
            let reason =
                value.has(UInt8(ascii: "#"))
                ? "the target contains #; encode it as %23" : "the target is not a path"
            return .refused(.malformed(reason: reason))
        }
        guard let target = value.validText else {
            return .refused(
                .malformed(reason: "the target is not UTF-8; percent-encode non-ASCII characters")
            )
        }
        // Few have one anywhere.
        let mayHaveDots = value.has(UInt8(ascii: ".")) || value.has(UInt8(ascii: "%"))
        // The web server chose the location by the path without them, and what the upstream makes of them
        // need not be the same.
        guard !mayHaveDots || !target.hasDotSegment else {
            return .refused(.malformed(reason: "the path has a segment . or .."))
        }
        return .valid(target)
    }

    /// The value; nil if it is empty.
    private mutating func word(_ name: ParameterBytes, _ value: ParameterBytes) -> String? {
        guard !value.isEmpty else { return nil }
        // Repaired bytes could make one owner of two. No configuration has a NUL or such bytes: they
        // are a client's, in a value that the web server takes from it.
        guard let text = value.validText, !value.has(0) else {
            let name = name.text
            refuse(.malformed(reason: "the value of \(name) is not UTF-8 text or contains NUL"))
            return nil
        }
        return text
    }

    /// An origin that is none is often what a client sent as `Host`: it is left out, not refused.
    private mutating func setOrigin(_ value: ParameterBytes) {
        context.origin = nil
        context.badOrigin = nil
        isOriginThere = !value.isEmpty
        // `$scheme://$http_host` of a request without Host: as if there were no origin.
        guard isOriginThere, !value.hasSuffix("://") else { return }
        context.origin = PublicOrigin.normalised(value)
        if context.origin == nil { context.badOrigin = value.text }
    }

    /// What the shipped configurations say, made once.
    private static let usualInterims: [(text: StaticString, statuses: Set<Int>)] = [
        ("", []), ("104", [104]), ("104 100", [104, 100]),
    ]

    private mutating func setInterimStatuses(_ name: ParameterBytes, _ value: ParameterBytes) {
        if let usual = Self.usualInterims.first(where: { value.equals($0.text) }) {
            context.interimStatuses = usual.statuses
            return
        }
        context.interimStatuses = []
        guard let text = word(name, value) else { return }
        for part in text.split(whereSeparator: { $0 == " " || $0 == "," }) {
            guard let status = Int(part), (100...199).contains(status) else {
                isMisconfigured = true
                return refuse(
                    .frontMisconfigured(
                        "SPOOLGATE_INTERIM must be a list of 1xx status codes, such as 104."
                    )
                )
            }
            context.interimStatuses.insert(status)
        }
    }
}

extension HTTPFields {
    /// Takes the names of some fields out of `Connection`, which is the client's: these are not, and it must not have
    /// them left out (RFC 9110 §7.6.1).
    ///
    /// - Parameter count: how many of the first fields may be the web server's. One that sends its own words behind its
    ///   client's fields (lighttpd) has `Connection` among them, and then nobody knows which are.
    fileprivate mutating func keepFromConnection(first count: Int) {
        guard let first = firstIndex(where: { $0.name == .connection }), first >= count else {
            return
        }
        let names = Set(prefix(count).map(\.name.canonicalName))
        let comma = UInt8(ascii: ",")
        for index in indices where self[index].name == .connection {
            // Bytes, not characters, as whoever reads the options splits them.
            let options = self[index].value.utf8.split(separator: comma)
            let kept = options.filter { option in
                let name = String(decoding: option.withoutOuterWhitespace, as: UTF8.self)
                return !names.contains(HTTPField.Name(name)?.canonicalName ?? "")
            }
            guard kept.count < options.count else { continue }
            self[index].value = String(
                decoding: Array(kept.joined(separator: [comma])),
                as: UTF8.self
            )
        }
    }
}

extension ParameterBytes {
    /// Whether the name of a field, behind `HTTP_`, begins with `Spoolgate-`, in any case.
    fileprivate var isReserved: Bool {
        count > 10 && self[9].loweredFieldNameByte == UInt8(ascii: "-")
            && zip(self, "spoolgate".utf8).allSatisfy { $0.loweredFieldNameByte == $1 }
    }
}

extension Refusal {
    fileprivate static let wrongRole = frontMisconfigured(
        "The web server must use FastCGI role RESPONDER for this service."
    )

    fileprivate static func missing(_ name: String) -> Refusal {
        frontMisconfigured(
            "The web server does not pass \(name): its configuration lacks fastcgi_param \(name)."
        )
    }
}

extension String {
    /// Whether the path of this target has a segment `.` or `..`, however spelt (RFC 3986 §3.3).
    fileprivate var hasDotSegment: Bool {
        let path = utf8.prefix { $0 != UInt8(ascii: "?") && $0 != UInt8(ascii: "#") }
        return PercentText.decode(path).split { "/\\".utf8.contains($0) }
            .contains { $0.elementsEqual(".".utf8) || $0.elementsEqual("..".utf8) }
    }
}

// MARK: Bytes

extension UInt8 {
    /// RFC 9110 §5.6.2.
    fileprivate var isTokenByte: Bool {
        switch self {
        case 0x30...0x39, 0x41...0x5A, 0x5E...0x7A, 0x23...0x27: true
        case 0x21, 0x2A, 0x2B, 0x2D, 0x2E, 0x7C, 0x7E: true
        default: false
        }
    }

    /// RFC 9110 §5.5: visible, space, tab, and what is not ASCII.
    fileprivate var isFieldValueByte: Bool { (self >= 0x20 && self != 0x7F) || self == 0x09 }

    /// `UPLOAD_OFFSET` stands for `upload-offset`.
    fileprivate var loweredFieldNameByte: UInt8 {
        switch self {
        case 0x41...0x5A: self | 0x20
        case UInt8(ascii: "_"): UInt8(ascii: "-")
        default: self
        }
    }
}
