// Which fields of a client's request go to the upstream, and which of the upstream's come back.
//
// Values are never changed, but for a Content-Type that names the protocol instead of the
// representation. Invariant: fields of one connection and message framing pass in no direction.

package import HTTPTypes
import SpoolgateTextFormats
package import SpoolgateUploadProtocol

/// The field rules between client and upstream.
package enum UpstreamFields {
    /// The client's fields of the one regular request built from an upload's creation.
    ///
    /// Protocol fields, connection fields and message framing are left out (RFC 9110 §7.6.1), and what
    /// `policy` does not let through. Nothing is set here: see `finish`.
    ///
    /// - Parameters:
    ///   - creation: the creation's fields, as received or as `recorded` left them.
    ///   - completing: the fields of the request that completes the upload, of which only credentials
    ///     are taken; nil if no request does.
    ///   - isWhole: whether the creation's message brought the whole representation, so that a
    ///     `Content-Digest` of it still holds (RFC 9530 §2).
    ///   - policy: the operator's rules.
    /// - Returns: the fields to send, in the order received.
    package static func delivered(
        _ creation: HTTPFields,
        completing: HTTPFields? = nil,
        isWhole: Bool = false,
        policy: FieldPolicy = FieldPolicy()
    ) -> HTTPFields {
        var through: Set<HTTPField.Name>?
        if let forward = policy.forward {
            through = Set(forward + policy.credentialFields).union(alwaysForwarded)
        }
        var fields = kept(of: creation, without: isWhole ? leftOutOfWhole : leftOutOfDelivered) {
            through?.contains($0) ?? true
                && (policy.keepsCredentials || !policy.credentialFields.contains($0))
                && policy.lets($0)
        }
        for index in fields.indices where fields[index].name == .contentType {
            let value = fields[index].value
            if partialMediaTypes.contains(where: { MediaType.of(value, is: $0) }) {
                fields[index].value = MediaType.any
            }
        }
        // One message has one set of them.
        guard let completing, !(isWhole && policy.credentials == .creation) else { return fields }
        let credentials = keptOfCompletion(completing, of: creation, policy: policy)
        guard !credentials.isEmpty else { return fields }
        fields.removeAll { policy.credentialFields.contains($0.name) }
        fields.append(contentsOf: credentials.filter { policy.lets($0.name) })
        return fields
    }

    /// The names of the fields that an authorizer has set in a creation's, and no client: kept with them, and never sent.
    package static let setNames = HTTPField.Name.made("spoolgate-set")

    /// What a creation's record may keep of its fields: no credentials that its delivery does not take
    /// from there.
    package static func recorded(_ creation: HTTPFields, policy: FieldPolicy) -> HTTPFields {
        policy.keepsCredentials
            ? creation : creation.filter { !policy.credentialFields.contains($0.name) }
    }

    /// The credentials of a completing request with which its upload is delivered, and which must be kept for a
    /// delivery after its end; empty if there are none.
    ///
    /// The creation's may have expired since. So they are replaced by those of the completing request, all of them, if
    /// that has the same fields and schemes; nothing is ever added to what the creation had, and what the authorizer has
    /// set stays.
    ///
    /// - Parameters:
    ///   - completing: the fields of the request that completes the upload.
    ///   - creation: the fields of the one that created it, as recorded.
    ///   - policy: the operator's rules.
    /// - Returns: the credentials, as the completing request has them.
    package static func keptOfCompletion(
        _ completing: HTTPFields,
        of creation: HTTPFields,
        policy: FieldPolicy
    ) -> HTTPFields {
        func credentials(_ fields: HTTPFields) -> HTTPFields {
            fields.filter { policy.credentialFields.contains($0.name) }
        }
        switch policy.credentials {
        case .none: return [:]
        case .completing: return credentials(completing)
        case .creation:
            guard completing != creation else { return [:] }
            let (old, new) = (credentials(creation), credentials(completing))
            guard old != new, !creation.contains(setNames), kinds(of: old) == kinds(of: new) else {
                return [:]
            }
            return new
        }
    }

    /// The names of credentials, and the scheme of each `Authorization` (RFC 9110 §11.4), in one order.
    private static func kinds(of credentials: HTTPFields) -> [[UInt8]] {
        credentials.map { field in
            let scheme =
                field.name == .authorization
                ? field.value.utf8.prefix { $0 != UInt8(ascii: " ") } : ""[...].utf8
            return Array("\(field.name.canonicalName) \(Substring(scheme).lowercased())".utf8)
        }.sorted { $0.lexicographicallyPrecedes($1) }
    }

    /// The fields of an ordinary request that passes through.
    ///
    /// Connection fields are left out; of the Upload-* fields only the markers that would make the
    /// upstream speak the protocol. `policy.forward` is for uploads alone.
    package static func passedThrough(
        _ fields: HTTPFields,
        policy: FieldPolicy = FieldPolicy()
    ) -> HTTPFields {
        kept(of: fields, without: leftOutOfPassed) {
            (policy.credentials != .none || !policy.credentialFields.contains($0))
                && policy.lets($0)
        }
    }

    /// Puts the operator's own fields in place of all others of their names.
    package static func finish(_ fields: inout HTTPFields, policy: FieldPolicy) {
        for field in policy.set { fields[fields: field.name] = [] }
        for field in policy.set { fields.append(field) }
    }

    /// Adds what a client said of its file in `Upload-Metadata`, where no field says it: the name as
    /// `Content-Disposition` (RFC 6266, RFC 8187), the type as `Content-Type`, and the other pairs as fields of
    /// their own where `policy` wants them, their values percent-encoded.
    package static func tell(
        _ metadata: UploadMetadata,
        name: ClientFileName,
        in fields: inout HTTPFields,
        policy: FieldPolicy
    ) {
        if metadata["filename"] != nil, !fields.contains(.contentDisposition) {
            fields[.contentDisposition] =
                "attachment; filename*=UTF-8''" + PercentText.encode(name.text)
        }
        let own = fields[.contentType]
        if let type = metadata.type(beside: own), type != own { fields[.contentType] = type }
        guard let prefix = policy.metadataPrefix else { return }
        for pair in metadata.others {
            guard let name = FieldPolicy.name(prefix + pair.key), policy.lets(name),
                // The gateway's own words.
                !name.canonicalName.utf8.starts(with: "spoolgate-".utf8),
                !policy.credentialFields.contains(name), !fields.contains(name)
            else { continue }
            fields[name] = PercentText.encode(pair.value)
        }
    }

    /// Whether a name is not the operator's to decide on: of a connection, of message framing or of an
    /// upload protocol.
    package static func isReserved(_ name: HTTPField.Name) -> Bool {
        let text = name.canonicalName
        return leftOutOfWhole.contains(text) || isOfUploads(text)
    }

    private static func isOfUploads(_ name: String) -> Bool {
        name.utf8.starts(with: "upload-".utf8) || name.utf8.starts(with: "tus-".utf8)
    }

    /// The fields of an upstream's response to an upload that a client may see.
    ///
    /// Connection fields, framing, Upload-* and Tus-* are left out. `Content-Length` is left out
    /// too: the sender knows it.
    package static func relayed(_ fields: HTTPFields) -> HTTPFields {
        kept(of: fields, without: leftOutOfResponse) { !isOfUploads($0.canonicalName) }
    }

    /// The fields of an upstream's response to an ordinary request that a client may see.
    ///
    /// Only connection fields, framing and `Content-Length` are left out: the upstream may speak an
    /// upload protocol of its own.
    package static func passedBack(_ fields: HTTPFields) -> HTTPFields {
        kept(of: fields, without: leftOutOfResponse)
    }

    /// Names that mark a request as one of the IETF protocol.
    private static let markerNames = FieldNameSet([
        "upload-draft-interop-version", "upload-complete", "upload-incomplete",
        // The gateway or the web server has answered it; the upstream connection decides anew.
        "expect",
        // The gateway's own (`setNames`).
        "spoolgate-set",
    ])

    // One set a direction, so that a field costs one look-up.
    private static let leftOutOfPassed = connectionNames.union(markerNames)
    private static let leftOutOfDelivered = leftOutOfWhole.union(FieldNameSet(["content-digest"]))
    // CGI gives `Status` a meaning that HTTP does not (RFC 3875 §6.3.3).
    private static let leftOutOfResponse = connectionNames.union(FieldNameSet(["status"]))
    private static let leftOutOfWhole = leftOutOfPassed.union(
        FieldNameSet([
            "upload-offset", "upload-length", "upload-limit", "upload-token", "upload-metadata",
            "upload-defer-length", "upload-concat", "upload-checksum", "tus-resumable",
            "x-http-method-override", "incremental",
        ])
    )

    /// Fields of one connection and of message framing (RFC 9110 §7.6.1, RFC 9112 §6).
    private static let connectionNames = FieldNameSet([
        "connection", "content-length", "keep-alive", "proxy", "proxy-authenticate",
        "proxy-authentication-info", "proxy-authorization", "proxy-connection", "te", "trailer",
        "transfer-encoding", "upgrade",
    ])

    /// Whether a field claims who the client is, or what it asked for, as only a proxy in front may: many
    /// applications believe it.
    fileprivate static func isClaim(_ name: HTTPField.Name) -> Bool {
        let text = name.canonicalName
        return claims.contains(text) || text.utf8.starts(with: "x-forwarded".utf8)
    }

    private static let claims = FieldNameSet([
        "forwarded", "x-real-ip", "x-real-port", "client-ip", "x-client-ip", "true-client-ip",
        "x-cluster-client-ip", "x-proxyuser-ip", "x-remote-ip", "x-remote-addr", "x-remote-user",
        "remote-user", "remote-addr", "x-originating-ip", "cf-connecting-ip", "fastly-client-ip",
        "x-azure-clientip", "x-original-url", "x-original-uri", "x-original-host",
        "x-original-method", "x-original-forwarded-for", "x-host", "x-http-host-override",
        "x-rewrite-url", "x-url-scheme",
        "x-scheme", "x-http-destinationurl", "front-end-https",
    ])

    /// Fields that `Connection` cannot name: they are for every recipient of the content, and a
    /// client that names them wants to hide them from the upstream (RFC 9110 §7.6.1).
    private static let endToEndNames: Set<String> = [
        "host", "authorization", "cookie", "content-type", "content-encoding", "cache-control",
        "forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip",
    ]

    /// What goes with an upload however short the list of forwarded fields is: whom it is for, and what
    /// its content is.
    private static let alwaysForwarded: Set<HTTPField.Name> = [
        .contentType, .contentEncoding, .contentLanguage, .contentDisposition, .contentDigest,
        .reprDigest, .host,
    ]

    private static let partialMediaTypes = [
        UploadResources.partialMediaType, Tus.mediaType,
    ]

    /// The fields but those of one connection, those left out and those that `lets` does not let
    /// through.
    private static func kept(
        of fields: HTTPFields,
        without leftOut: FieldNameSet,
        _ lets: (HTTPField.Name) -> Bool = { _ in true }
    ) -> HTTPFields {
        let named = connectionOptions(fields)
        func isKept(_ field: HTTPField) -> Bool {
            let name = field.name.canonicalName
            if leftOut.contains(name) { return false }
            if !named.isEmpty, named.contains(name), !endToEndNames.contains(name) { return false }
            return lets(field.name)
        }
        // Mostly all are: then nothing is copied.
        guard let first = fields.firstIndex(where: { !isKept($0) }) else { return fields }
        var kept = HTTPFields()
        kept.reserveCapacity(fields.count)
        for index in fields.indices where index < first || index > first && isKept(fields[index]) {
            kept.append(fields[index])
        }
        return kept
    }

    /// The names in `Connection`, in lower case.
    private static func connectionOptions(_ fields: HTTPFields) -> Set<String> {
        var options: Set<String> = []
        for field in fields where field.name == .connection {
            // The two that nearly every request has name no field that would pass anyway.
            if field.value == "keep-alive" || field.value == "close" { continue }
            // Bytes, not characters: a combining mark would hide a comma, and the Kelvin sign is no k.
            for option in field.value.utf8.split(separator: UInt8(ascii: ",")) {
                let text = String(decoding: option.withoutOuterWhitespace, as: UTF8.self)
                if let name = HTTPField.Name(text) { options.insert(name.canonicalName) }
            }
        }
        return options
    }
}

extension FieldPolicy {
    /// Whether a client's field of that name may go to the upstream with any request.
    fileprivate func lets(_ name: HTTPField.Name) -> Bool {
        (trustsForwarded || !UpstreamFields.isClaim(name)) && !strip.contains(name)
    }
}
