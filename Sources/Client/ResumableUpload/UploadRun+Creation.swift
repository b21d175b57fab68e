// Begins an upload: by one ordinary request, by an empty creation, or by a creation with content.
//
// The invariant: a complete request without a response is sent again only if repeating the request is safe.

import HTTPTypes
import SpoolgateCurl
import SpoolgatePosix
import SpoolgateUploadProtocol

extension UploadRun {
    func begin() throws(TransferError) -> Transfer.Response? {
        if options.creation == .plain { return try sendPlain(try portion(from: 0, limit: nil)) }
        // An empty creation only needs to know whether the body is small.
        let isEmpty = options.creation == .careful
        let maximum = isEmpty ? max(1, options.plainBelow) : .max
        let portion = try portion(from: 0, upTo: maximum)
        let isSmall = portion.isLast && portion.count < options.plainBelow
        if isSmall && beginnings == 0 {
            return try sendPlain(portion)
        }
        beginnings += 1
        return options.creation == .careful
            ? try createCarefully() : try createOptimistically(portion)
    }

    private func creationFields(_ portion: Portion) -> HTTPFields {
        var fields = options.fields
        version.name(in: &fields)
        version.mark(portion.isLast, in: &fields)
        if let length = content.length { fields[.uploadLength] = String(length) }
        return fields
    }

    private func createCarefully() throws(TransferError) -> Transfer.Response? {
        let purpose = "the creation by \(options.method.rawValue) \(target.text)"
        let portion = Portion(count: 0, isLast: false)
        let result = send(portion, from: 0, by: options.method, to: target, creationFields(portion))
        guard let (response, read) = try responded(result, purpose) else { return nil }
        switch Decision(of: read, to: .carefulCreation, by: options.method) {
        case .final: return response
        case .acknowledged:
            limit(by: read)
            try take(location: read.location)
            offset = read.offset ?? 0
        case .unknownVersion: try takeCommonVersion(response, purpose)
        case .later: try wait(purpose, response, read)
        case .unsupported:
            throw TransferError(
                .unsupported,
                "\(purpose) was accepted as the whole upload: this server does not support resumable "
                    + "uploads; undo the effect of the empty body, and send the upload by one "
                    + "ordinary request",
                response: response
            )
        case .redirected: throw redirected(response, from: target, purpose)
        default: throw refusal(response, purpose)
        }
        return nil
    }

    /// Continues with the version that servers with few versions support; throws if that version was already in use.
    private func takeCommonVersion(_ response: Transfer.Response, _ purpose: String)
        throws(TransferError)
    {
        guard let common = WireVersion(WireVersion.common), version != common else {
            throw refusal(response, purpose)
        }
        version = common
    }

    private func createOptimistically(_ portion: Portion) throws(TransferError) -> Transfer
        .Response?
    {
        let purpose = "\(options.method.rawValue) \(target.text)"
        var fields = creationFields(portion)
        fields.requestIncrementalForwarding()
        let result = send(portion, from: 0, by: options.method, to: target, fields)
        if resource == nil { try checkRepeatable(result, portion, purpose) }
        // An interrupted upload cannot continue at an origin that is not allowed.
        if resource == nil, result.head == nil, let foreign { throw isForeign(foreign) }
        guard let (response, read) = try responded(result, purpose) else { return nil }
        limit(by: read)
        let decision = Decision(
            of: read,
            to: .optimisticCreation(isComplete: portion.isLast),
            by: options.method,
            repeating: isRepeatable ? .safe : .unsafe
        )
        // The server of the upload resource would have sent upload fields.
        if resource != nil, (200..<300).contains(read.status), !read.knowsUploads {
            unconfirmed = (response, 0, portion.count)
            return nil
        }
        switch decision {
        case .final: return response
        case .redirected:
            if read.isComplete == true { token = nil }
            throw redirected(response, from: target, purpose)
        case .unsupported:
            throw TransferError(
                .unsupported,
                "\(purpose) was accepted as the whole upload, but only \(portion.count) bytes of it were "
                    + "sent: this server does not support resumable uploads; undo the effect of "
                    + "these bytes, and send the upload by one ordinary request",
                response: response
            )
        case .acknowledged(let stated):
            if resource == nil { try take(location: read.location) }
            acknowledge(stated, upTo: portion.count, from: 0)
        case .tooLarge: maxAppend = smaller(than: portion.count)
        case .unknownVersion:
            // The server that created the upload resource supports the version.
            guard resource == nil else { return response }
            try takeCommonVersion(response, purpose)
        case .later: try wait(purpose, response, read)
        default: throw refusal(response, purpose)
        }
        return nil
    }

    private func sendPlain(_ portion: Portion) throws(TransferError) -> Transfer.Response? {
        let purpose = "\(options.method.rawValue) \(target.text)"
        guard portion.isLast else {
            throw error(
                .invalid,
                "\(purpose): a stream cannot be sent by one ordinary request; use another creation"
            )
        }
        let result = exchange.send(
            options.method,
            target,
            options.fields,
            content: give(portion, from: 0)
        )
        try checkRepeatable(result, portion, purpose)
        guard let (response, read) = try responded(result, purpose) else { return nil }
        let decision = Decision(
            of: read,
            to: .plain,
            by: options.method,
            repeating: repeating(after: response, read)
        )
        switch decision {
        case .later:
            try wait(purpose, response, read)
            return nil
        case .redirected: throw redirected(response, from: target, purpose)
        default: return response
        }
    }

    /// `Retry-After` alone does not prove that a `POST` was not passed on, because proxies send it as well.
    ///
    /// A problem document with a `code` is from the gateway (spoolgate(8)), which requests another attempt only if it
    /// kept and passed on nothing.
    private func repeating(after response: Transfer.Response, _ read: ServerResponse) -> Repeating {
        let isOwn = ProblemDocument.code(response.fields, response.content) != nil
        guard read.retryAfter != nil, isRepeatable || isOwn else {
            return isRepeatable ? .safe : .unsafe
        }
        return .requested
    }

    /// Throws if all content may have arrived without a response, and repeating the request is not safe.
    private func checkRepeatable(
        _ result: ExchangeResult,
        _ portion: Portion,
        _ purpose: String
    ) throws(TransferError) {
        guard result.head == nil, result.wasBegun, portion.isLast,
            result.uploaded >= portion.count, !isRepeatable
        else { return }
        throw error(
            .unknownOutcome,
            "\(purpose) was sent completely, but no response arrived: "
                + "\(result.fault?.reason ?? ""); check whether the server has it before you send it "
                + "again"
        )
    }

    var isRepeatable: Bool {
        options.method.isIdempotent || options.fields.contains(.idempotencyKey)
    }

    private func take(location: String?) throws(TransferError) {
        guard let location, let url = target.resolved(location) else {
            throw error(
                .unsupported,
                "\(target.text) created an upload resource with the Location "
                    + "\"\(location ?? "")\", which is not a URL; check the server"
            )
        }
        guard isAllowed(url) else { throw isForeign(url) }
        name(url)
    }

    private func isAllowed(_ url: URLText) -> Bool {
        url.hasOrigin(of: target) || options.allowsOtherOrigin
    }

    private func isForeign(_ url: URLText) -> TransferError {
        error(
            .otherOrigin,
            "\(target.text) created an upload resource at another origin, \(url.text); allow this if "
                + "it is intended"
        )
    }

    private func name(_ url: URLText) {
        guard url != resource else { return }
        resource = url
        isFinished = false
        setToken(
            Upload.Token(
                url: url.text,
                target: target.text,
                length: content.length,
                interopVersion: version.named,
                fingerprint: content.fingerprint
            )
        )
    }

    func setToken(_ token: Upload.Token?) {
        guard token != self.token else { return }
        self.token = token
        if let token { report(.resumable(token)) }
    }

    func receive(_ head: ResponseHead, from base: URLText, creates: Bool) {
        guard version.isOwn(head) else { return }
        let read = ServerResponse(head)
        limit(by: read)
        if creates, let url = read.location.flatMap(base.resolved(_:)) {
            if isAllowed(url) { name(url) } else { foreign = url }
        }
        if resource != nil, let stated = read.offset { progressed(to: stated) }
    }

    func limit(by response: ServerResponse) {
        if let maximum = response.maxAppend {
            maxAppend = min(maximum, appendLimit.bytes ?? maximum)
        }
        if let least = response.minAppend { minAppend = least }
    }

    /// Returns half of `count`, or the server's limit if that limit is smaller.
    func smaller(than count: Int64) -> Int64 { min(maxAppend ?? count, max(1, count / 2)) }
}
