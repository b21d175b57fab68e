// Converts FastCGI parameters into a request head and its context.
//
// Pure. Invariant: a parameter that begins with HTTP_ comes from the client and becomes a field. All other parameters
// come from the operator and become none, except CONTENT_TYPE, which is the client's field.

import HTTPTypes
package import SpoolgateExchange
import SpoolgatePosix
import SpoolgateTextFormats
package import SpoolgateUploadProtocol

/// The parameters of one request, added one by one, then read as a whole.
package struct RequestParameters: ~Copyable {
    /// The limits on a request's head; the defaults exceed those of web servers.
    package struct Limits: Sendable, Equatable {
        /// The maximum number of field lines.
        package var fields = 200
        /// The maximum total size of field names and values in bytes.
        package var fieldBytes = 64 * 1024
        /// The maximum size of the request target in bytes.
        package var targetBytes = 32 * 1024
    }

    private let limits: Limits
    private var fields = HTTPFields()
    private var fieldCount = 0
    private var fieldBytes = 0
    /// The number of leading fields that the web server has set itself.
    private var configuredCount = 0
    /// The values of the client's `Connection`.
    private var connection: [String] = []
    /// Whether the order does not show which fields the web server has set (lighttpd).
    private var isOriginHidden = false
    /// Only the first reason to refuse the request is kept.
    private var refusals: [Refusal] = []
    private var method = Word<HTTPRequest.Method>.missing
    private var target = Word<String>.missing
    private var contentLength: ContentLength = .unknown
    private var context = ExchangeContext.empty
    private var isMisconfigured = false
    private var isOriginThere = false
    private var isBuffered = false
    private var isNginx = false
    private var isBufferingReported = false

    /// A parameter that every request needs.
    private enum Word<Value> {
        case missing
        indirect case refused(Refusal)
        case valid(Value)

        var isMissing: Bool { if case .missing = self { true } else { false } }
    }

    /// Creates an empty set of parameters.
    package init(limits: Limits = Limits()) {
        self.limits = limits
        fields.reserveCapacity(8)
    }

    /// Reads a request's head from `NAME=value` parameters, in the order received.
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

    /// Adds the parameters of a request; returns false if they are truncated or libfcgi does not accept them.
    ///
    /// - Throws: `SystemError` if no descriptor or memory is left; then no parameter was added.
    mutating func take(
        _ beginning: inout RequestBeginning,
        takenApartBy request: borrowing FastCGIRequest
    ) throws(SystemError) -> Bool {
        if beginning.role != RequestBeginning.responder { refuse(.wrongRole) }
        if beginning.parameters == nil { refuse(.fieldsTooLarge(limit: limits.fieldBytes)) }
        guard let isSound = beginning.keepSoundParameters() else { return false }
        // No configuration contains a NUL, so a NUL comes from a client.
        if !isSound { refuse(.malformed(reason: "a parameter contains NUL or has = in its name")) }
        return try request.forEachParameter(of: beginning) { add($0, $1) }
    }

    /// Adds one parameter.
    ///
    /// If an operator's parameter occurs repeatedly, the last value counts, as in the configurations. Client fields are
    /// all kept, in order.
    package mutating func add(_ name: ParameterBytes, _ value: ParameterBytes) {
        if name.hasPrefix("HTTP_") {
            addField(ParameterBytes(rebasing: name[5...]), value)
        } else {
            // Web servers send configured parameters before the client's fields.
            configuredCount = fields.count
            isOriginHidden = !connection.isEmpty
            addOperatorWord(name, value)
        }
    }

    /// Returns the head, or the first reason to refuse the request, and the context.
    package consuming func read() -> (head: Result<RequestHead, Refusal>, context: ExchangeContext)
    {
        let head = readHead()
        var context = context
        let isIncomplete = refusals.isEmpty && (method.isMissing || target.isMissing)
        if isMisconfigured || isIncomplete { context.faults.insert(.noMethod) }
        if !isOriginThere { context.faults.insert(.noOrigin) }
        if context.badOrigin != nil { context.faults.insert(.badOrigin) }
        if isBuffered { context.faults.insert(.buffered) }
        // The stock parameters of nginx have SERVER_SOFTWARE, but the shipped ones do not.
        if isNginx, !isBufferingReported { context.faults.insert(.bufferingUnknown) }
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
            // CONTENT_TYPE looks configured, but is the client's; usually it is the only such field.
            if configuredCount > 1 || configuredCount == 1 && fields[0].name != .contentType {
                fields.removeRepetitions(ofFirst: configuredCount)
            }
            // A client must not remove what the web server has set (RFC 9110 §7.6.1). If it is unknown who has set a
            // field, only the registered fields of a connection are left out later.
            if !isOriginHidden, !connection.isEmpty {
                fields.removeFields(namedBy: connection, exceptFirst: configuredCount)
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

// MARK: Client fields

extension RequestParameters {
    /// Adds a field; `name` is the part of the parameter's name after `HTTP_`.
    private mutating func addField(_ name: ParameterBytes, _ value: ParameterBytes) {
        switch ClientFieldNames.all.find(name) {
        case .replaced: return
        case .connection:
            guard count(.connection, value) else { return }
            connection.append(value.trimmed.text)
        case .name(let known): addField(known, value)
        case .unknown:
            // These names belong to the gateway's own fields.
            if name.isReserved { return }
            let lowered = String(unsafeUninitializedCapacity: name.count) { text in
                for (index, byte) in name.enumerated() { text[index] = byte.loweredFieldNameByte }
                return name.count
            }
            // Not `parsed:`, which accepts `:path`; such a field name would crash the process.
            addField(HTTPField.Name(lowered), value, nameCount: name.count)
        }
    }

    private mutating func addField(
        _ name: HTTPField.Name?,
        _ value: ParameterBytes,
        nameCount: Int? = nil
    ) {
        guard count(name, value, nameCount: nameCount), let name else { return }
        let trimmed = value.trimmed
        // For bytes that are not ASCII, the library stores an array.
        fields.append(
            trimmed.isASCII
                ? HTTPField(name: name, value: trimmed.text) : HTTPField(name: name, value: trimmed)
        )
    }

    /// Counts a field against the limits; returns false if the request is refused for it.
    private mutating func count(
        _ name: HTTPField.Name?,
        _ value: ParameterBytes,
        nameCount: Int? = nil
    ) -> Bool {
        fieldCount += 1
        fieldBytes += (nameCount ?? name?.canonicalName.utf8.count ?? 0) + value.count
        if fieldCount > limits.fields {
            refuse(.tooManyFields(limit: limits.fields))
        } else if fieldBytes > limits.fieldBytes {
            refuse(.fieldsTooLarge(limit: limits.fieldBytes))
        } else if name == nil {
            refuse(.malformed(reason: "a field name is not a token"))
        } else if !value.trimmed.allSatisfy(\.isFieldValueByte) {
            refuse(.malformed(reason: "a field value contains a control character"))
        } else {
            return true
        }
        return false
    }

    /// A missing or empty value and `-1` mean that the length is unknown.
    private mutating func setContentLength(_ value: ParameterBytes) {
        let digits = value.trimmed
        guard !digits.isEmpty, !digits.equals("-1") else { return contentLength = .unknown }
        guard let length = Int64(digits: digits) else {
            return refuse(.malformed(reason: "Content-Length is not a valid number"))
        }
        contentLength = .known(length)
    }
}

// MARK: Operator parameters

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
            isBufferingReported = true
            isBuffered = !value.isEmpty
        default: break
        }
    }

    /// In lower case, like all field names of a request here.
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
        let mayHaveDots = value.has(UInt8(ascii: ".")) || value.has(UInt8(ascii: "%"))
        // The web server chose the location without dot segments, and the upstream may interpret them differently.
        guard !mayHaveDots || !target.hasDotSegment else {
            return .refused(.malformed(reason: "the path has a segment . or .."))
        }
        return .valid(target)
    }

    private mutating func word(_ name: ParameterBytes, _ value: ParameterBytes) -> String? {
        guard !value.isEmpty else { return nil }
        // Repaired bytes could make two owners equal. No configuration contains such bytes, so they come from a client.
        guard let text = value.validText, !value.has(0) else {
            let name = name.text
            refuse(.malformed(reason: "the value of \(name) is not UTF-8 text or contains NUL"))
            return nil
        }
        return text
    }

    /// Ignores an invalid origin, because it often is the client's `Host`.
    private mutating func setOrigin(_ value: ParameterBytes) {
        context.origin = nil
        context.badOrigin = nil
        isOriginThere = !value.isEmpty
        // `$scheme://$http_host` of a request without `Host` counts as no origin.
        guard isOriginThere, !value.hasSuffix("://") else { return }
        context.origin = PublicOrigin.normalised(value)
        if context.origin == nil { context.badOrigin = value.text }
    }

    /// The values of `SPOOLGATE_INTERIM` in the shipped configurations.
    private static let usualInterims: [(text: StaticString, statuses: [Int])] = [
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
                    .webServerMisconfigured(
                        "SPOOLGATE_INTERIM must be a list of 1xx status codes, such as 104."
                    )
                )
            }
            context.interimStatuses.append(status)
        }
    }
}

extension HTTPFields {
    /// Removes the fields after the first `count` that have the name of one of them.
    fileprivate mutating func removeRepetitions(ofFirst count: Int) {
        let names = Set(prefix(count).map(\.name))
        guard dropFirst(count).contains(where: { names.contains($0.name) }) else { return }
        self = HTTPFields(prefix(count) + dropFirst(count).filter { !names.contains($0.name) })
    }
}

extension ParameterBytes {
    /// Whether the name begins with `Spoolgate-`, in any case.
    fileprivate var isReserved: Bool {
        count > 10 && self[9].loweredFieldNameByte == UInt8(ascii: "-")
            && zip(self, "spoolgate".utf8).allSatisfy { $0.loweredFieldNameByte == $1 }
    }
}

extension Refusal {
    fileprivate static let wrongRole = webServerMisconfigured(
        "The web server must use FastCGI role RESPONDER for this service."
    )

    fileprivate static func missing(_ name: String) -> Refusal {
        webServerMisconfigured(
            "The web server does not pass \(name); set it with fastcgi_param."
        )
    }
}

extension String {
    /// Whether the path has a segment `.` or `..`, in any encoding (RFC 3986 §3.3).
    fileprivate var hasDotSegment: Bool {
        let path = utf8.prefix { $0 != UInt8(ascii: "?") && $0 != UInt8(ascii: "#") }
        return PercentText.decode(path).split { "/\\".utf8.contains($0) }
            .contains { $0.elementsEqual(".".utf8) || $0.elementsEqual("..".utf8) }
    }
}

// MARK: Bytes

extension UInt8 {
    /// Whether the byte may occur in a token (RFC 9110 §5.6.2).
    fileprivate var isTokenByte: Bool {
        switch self {
        case 0x30...0x39, 0x41...0x5A, 0x5E...0x7A, 0x23...0x27: true
        case 0x21, 0x2A, 0x2B, 0x2D, 0x2E, 0x7C, 0x7E: true
        default: false
        }
    }

    /// Whether the byte may occur in a field value (RFC 9110 §5.5).
    fileprivate var isFieldValueByte: Bool { (self >= 0x20 && self != 0x7F) || self == 0x09 }

    /// Converts a byte of `UPLOAD_OFFSET` to that of `upload-offset`.
    fileprivate var loweredFieldNameByte: UInt8 {
        switch self {
        case 0x41...0x5A: self | 0x20
        case UInt8(ascii: "_"): UInt8(ascii: "-")
        default: self
        }
    }
}
