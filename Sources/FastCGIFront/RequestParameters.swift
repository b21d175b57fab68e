// FastCGI parameters become a request head and what the web server says of it.
//
// Pure: bytes in, values out. It decides nothing about uploads. Invariant: a parameter that begins
// with HTTP_ is the client's word and becomes a field, every other one is the operator's and never
// does, but for CONTENT_TYPE, which is the client's under another name.

package import Exchange
import HTTPTypes
import TextFormats
package import UploadProtocol

/// The parameters of one request, added one by one, then read as a whole.
package struct RequestParameters {
    /// How much of a request head is taken.
    package struct Limits: Sendable, Equatable {
        /// Field lines.
        package var fields: Int
        /// Bytes of all field names and values together.
        package var fieldBytes: Int
        /// Bytes of the request target.
        package var targetBytes: Int

        /// Makes limits; the defaults are above what web servers let through by default.
        package init(fields: Int = 200, fieldBytes: Int = 64 * 1024, targetBytes: Int = 32 * 1024) {
            self.fields = fields
            self.fieldBytes = fieldBytes
            self.targetBytes = targetBytes
        }
    }

    private let limits: Limits
    private var fields = HTTPFields()
    private var fieldCount = 0
    private var fieldBytes = 0
    private var refusal: Refusal?
    private var method: [UInt8]?
    private var target: [UInt8]?
    private var contentLength: ContentLength = .unknown
    // Until the parameter comes.
    private var context = ExchangeContext(faults: [.noOrigin])
    /// Whether the web server is an nginx, and whether it told what it does with content.
    private var isNginx = false
    private var isBufferingTold = false

    /// Starts with no parameter.
    package init(limits: Limits = Limits()) {
        self.limits = limits
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

    /// The parameters of a request; nil where they are cut off.
    init?(_ beginning: RequestBeginning, limits: Limits) {
        self.init(limits: limits)
        if beginning.role != RequestBeginning.responder { refuse(.wrongRole) }
        if beginning.parameters == nil { refuse(.fieldsTooLarge(limit: limits.fieldBytes)) }
        guard beginning.forEachParameter({ add($0, $1) }) else { return nil }
    }

    /// Adds one parameter.
    ///
    /// Of several operator's parameters with one name the last counts, as in the configurations
    /// they come from; of the client's all do, in order.
    package mutating func add(
        _ name: UnsafeBufferPointer<UInt8>,
        _ value: UnsafeBufferPointer<UInt8>
    ) {
        if name.starts(with: "HTTP_".utf8) {
            addField(UnsafeBufferPointer(rebasing: name[5...]), value)
        } else {
            addOperatorWord(String(decoding: name, as: UTF8.self), value)
        }
    }

    /// The head, or the first reason why it is none, and the operator's words.
    package func read() -> (head: Result<RequestHead, Refusal>, context: ExchangeContext) {
        var context = context
        // Of nginx's own parameters, which are not ours, SERVER_SOFTWARE is one.
        if isNginx, !isBufferingTold { context.faults.insert(.bufferingUntold) }
        return (readHead(&context.faults), context)
    }

    private func readHead(_ faults: inout Set<FrontFault>) -> Result<RequestHead, Refusal> {
        if let refusal { return .failure(refusal) }
        guard let method, !method.isEmpty, let target, !target.isEmpty else {
            faults.insert(.noMethod)
            let isMethodThere = method.map { !$0.isEmpty } ?? false
            return .failure(.missing(isMethodThere ? "REQUEST_URI" : "REQUEST_METHOD"))
        }
        guard method.allSatisfy(\.isTokenByte),
            let method = HTTPRequest.Method(rawValue: String(decoding: method, as: UTF8.self))
        else { return .failure(.malformed(reason: "its method is no token")) }
        guard target.count <= limits.targetBytes else {
            return .failure(.targetTooLong(limit: limits.targetBytes))
        }
        guard target.first == UInt8(ascii: "/") || target == [UInt8(ascii: "*")],
            target.allSatisfy({ $0 > 0x20 && $0 != 0x7F }),
            let target = String(validating: target, as: UTF8.self)
        else { return .failure(.malformed(reason: "its target is no path")) }
        // The web server chose the location by the path without them, and what the upstream makes of them
        // need not be the same.
        guard !target.hasDotSegment else {
            return .failure(.malformed(reason: "its path has a segment of one or two dots"))
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

    private mutating func refuse(_ refusal: Refusal) {
        if self.refusal == nil { self.refusal = refusal }
    }
}

// MARK: The client's words

extension RequestParameters {
    /// Fields that a web server may pass on beside the parameter that stands for them, and the one
    /// that is no matter of ours: the web server has undone the transfer coding.
    private static let replaced: Set<String> = [
        "content-type", "content-length", "transfer-encoding",
    ]

    private mutating func addField(
        _ name: UnsafeBufferPointer<UInt8>,
        _ value: UnsafeBufferPointer<UInt8>
    ) {
        var lowered = ""
        for byte in name {
            lowered.unicodeScalars.append(Unicode.Scalar(byte.loweredFieldNameByte))
        }
        guard !Self.replaced.contains(lowered) else { return }
        addField(named: lowered, value)
    }

    private mutating func addField(named name: String, _ value: UnsafeBufferPointer<UInt8>) {
        fieldCount += 1
        fieldBytes += name.utf8.count + value.count
        guard fieldCount <= limits.fields else {
            return refuse(.tooManyFields(limit: limits.fields))
        }
        guard fieldBytes <= limits.fieldBytes else {
            return refuse(.fieldsTooLarge(limit: limits.fieldBytes))
        }
        // Not `parsed:`, which takes `:path`; such a name among the fields ends the process.
        guard let name = HTTPField.Name(name) else {
            return refuse(.malformed(reason: "a field name is no token"))
        }
        let trimmed = value.withoutOuterWhitespace
        guard trimmed.allSatisfy(\.isFieldValueByte) else {
            return refuse(.malformed(reason: "a field value has a control character"))
        }
        fields.append(HTTPField(name: name, value: trimmed))
    }

    /// `CONTENT_LENGTH`: nothing, an empty value and `-1` all mean that the length is not known.
    private mutating func setContentLength(_ value: UnsafeBufferPointer<UInt8>) {
        let text = String(decoding: value.withoutOuterWhitespace, as: UTF8.self)
        guard !text.isEmpty, text != "-1" else { return contentLength = .unknown }
        guard let length = Int64(digits: text) else {
            return refuse(.malformed(reason: "its content length is no number that counts"))
        }
        contentLength = .known(length)
    }
}

// MARK: The operator's words

extension RequestParameters {
    private mutating func addOperatorWord(_ name: String, _ value: UnsafeBufferPointer<UInt8>) {
        switch name {
        case "REQUEST_METHOD": method = Array(value)
        case "REQUEST_URI": target = Array(value)
        case "CONTENT_LENGTH": setContentLength(value)
        case "CONTENT_TYPE":
            guard !value.isEmpty, fields[.contentType] == nil else { return }
            addField(named: "content-type", value)
        case "FCGI_ROLE":
            guard !value.elementsEqual("RESPONDER".utf8) else { return }
            context.faults.insert(.noMethod)
            refuse(.wrongRole)
        case "REMOTE_ADDR": context.remoteAddress = word(name, value)
        case "REQUEST_SCHEME": context.scheme = word(name, value)
        case "SPOOLGATE_ROUTE": context.route = word(name, value)
        case "SPOOLGATE_OWNER": context.owner = word(name, value)
        case "SPOOLGATE_ORIGIN": setOrigin(value)
        case "SPOOLGATE_INTERIM": setInterimStatuses(value)
        case "SERVER_SOFTWARE": isNginx = value.starts(with: "nginx".utf8)
        case "SPOOLGATE_BODY_FILE":
            isBufferingTold = true
            if value.isEmpty {
                context.faults.remove(.buffered)
            } else {
                context.faults.insert(.buffered)
            }
        default: break
        }
    }

    /// The value; nil if it is empty.
    private mutating func word(_ name: String, _ value: UnsafeBufferPointer<UInt8>) -> String? {
        guard !value.isEmpty else { return nil }
        // Repaired bytes could make one owner of two. No configuration has a NUL or such bytes: they
        // are a client's, in a value that the web server takes from it.
        guard let text = String(validating: value, as: UTF8.self), !value.contains(0) else {
            refuse(.malformed(reason: "the value for \(name) is no UTF-8 text without NUL"))
            return nil
        }
        return text
    }

    /// An origin that is none is often what a client sent as `Host`: it is left out, not refused.
    private mutating func setOrigin(_ value: UnsafeBufferPointer<UInt8>) {
        context.origin = nil
        context.badOrigin = nil
        context.faults.subtract([.noOrigin, .badOrigin])
        guard !value.isEmpty else {
            context.faults.insert(.noOrigin)
            return
        }
        let text = String(decoding: value, as: UTF8.self)
        // `$scheme://$http_host` of a request without Host: as if there were no origin.
        if text.hasSuffix("://") { return }
        context.origin = PublicOrigin.normalised(text)
        guard context.origin == nil else { return }
        context.badOrigin = text
        context.faults.insert(.badOrigin)
    }

    private mutating func setInterimStatuses(_ value: UnsafeBufferPointer<UInt8>) {
        context.interimStatuses = []
        guard let text = word("SPOOLGATE_INTERIM", value) else { return }
        for part in text.split(whereSeparator: { $0 == " " || $0 == "," }) {
            guard let status = Int(part), (100...199).contains(status) else {
                context.faults.insert(.noMethod)
                return refuse(
                    .frontMisconfigured("SPOOLGATE_INTERIM must be 1xx statuses, like 104.")
                )
            }
            context.interimStatuses.insert(status)
        }
    }
}

extension Refusal {
    fileprivate static let wrongRole = frontMisconfigured(
        "The web server must use this service as a FastCGI responder."
    )

    fileprivate static func missing(_ name: String) -> Refusal {
        frontMisconfigured("The web server passes no \(name): a fastcgi_param \(name) is missing.")
    }
}

extension String {
    /// Whether the path of this target has a segment `.` or `..`, however spelt (RFC 3986 §3.3).
    fileprivate var hasDotSegment: Bool {
        // Few have one anywhere.
        guard utf8.contains(UInt8(ascii: ".")) || utf8.contains(UInt8(ascii: "%")) else {
            return false
        }
        let path = utf8.prefix { $0 != UInt8(ascii: "?") && $0 != UInt8(ascii: "#") }
        return PercentText.decode(path).split { "/\\".utf8.contains($0) }
            .contains { $0.elementsEqual(".".utf8) || $0.elementsEqual("..".utf8) }
    }
}

// MARK: Bytes

extension UInt8 {
    /// RFC 9110 §5.6.2.
    fileprivate var isTokenByte: Bool {
        isAlphanumeric || "!#$%&'*+-.^_`|~".utf8.contains(self)
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
