// The request fields sent to the upstream, and the response fields sent back.
//
// Values are unchanged, except for a Content-Type that names the protocol instead of the representation. Invariant:
// fields of one connection and of message framing pass in neither direction.

package import HTTPTypes
import SpoolgateTextFormats
package import SpoolgateUploadProtocol

/// The rules for the fields that pass between client and upstream.
package enum UpstreamFields {
    /// The client's fields for the request that delivers an upload.
    ///
    /// Protocol fields, connection fields and message framing are left out (RFC 9110 §7.6.1), as are fields that
    /// `policy` excludes. `finish` adds the operator's own fields.
    ///
    /// - Parameters:
    ///   - creation: the fields of the creation, as received or as returned by `recorded`.
    ///   - granted: the names of the fields that the authorizer has set or removed; no completing request replaces them.
    ///   - completing: the fields of the request that completed the upload, used only for credentials; nil if there is
    ///     none.
    ///   - isWhole: true if the creation's message contained the whole representation, so that its `Content-Digest`
    ///     still applies (RFC 9530 §2).
    ///   - policy: the operator's rules.
    /// - Returns: the fields to send, in the order received.
    package static func delivered(
        _ creation: HTTPFields,
        granted: [HTTPField.Name] = [],
        completing: HTTPFields? = nil,
        isWhole: Bool = false,
        policy: FieldPolicy = FieldPolicy()
    ) -> HTTPFields {
        var through: Set<HTTPField.Name>?
        if let forward = policy.forward {
            through = Set(forward + policy.credentialFields).union(alwaysForwarded)
        }
        var fields = kept(of: creation, without: isWhole ? leftOutOfWhole : leftOutOfDelivered) {
            (through?.contains($0) ?? true || granted.contains($0))
                && policy.keepsCredential($0, granted) && policy.lets($0, granted)
        }
        for index in fields.indices where fields[index].name == .contentType {
            let value = fields[index].value
            if partialMediaTypes.contains(where: { MediaType.of(value, is: $0) }) {
                fields[index].value = MediaType.any
            }
        }
        // A single message has only one set of credentials.
        guard let completing, !(isWhole && policy.credentials == .creation) else { return fields }
        let credentials = keptOfCompletion(
            completing,
            of: creation,
            granted: granted,
            policy: policy
        ).filter { !granted.contains($0.name) }
        guard !credentials.isEmpty else { return fields }
        fields.removeAll { policy.credentialFields.contains($0.name) && !granted.contains($0.name) }
        fields.append(contentsOf: credentials.filter { policy.lets($0.name, granted) })
        return fields
    }

    /// The fields of a creation that its record keeps, with credentials only if the delivery uses them.
    package static func recorded(
        _ creation: HTTPFields,
        granted: [HTTPField.Name] = [],
        policy: FieldPolicy
    ) -> HTTPFields {
        policy.keepsCredentials
            ? creation : creation.filter { policy.keepsCredential($0.name, granted) }
    }

    /// The credentials of a completing request that the delivery uses, and that must be stored for later attempts.
    ///
    /// The creation's credentials may have expired. If `policy` uses them, the completing request's credentials replace
    /// them, provided that both have the same field names and schemes. The upstream never receives those whose names
    /// the authorizer has set or removed, but the authorizer does, so that a client can renew them.
    package static func keptOfCompletion(
        _ completing: HTTPFields,
        of creation: HTTPFields,
        granted: [HTTPField.Name] = [],
        policy: FieldPolicy
    ) -> HTTPFields {
        switch policy.credentials {
        case .none: return [:]
        case .completing: return policy.credentials(in: completing, except: [])
        case .creation:
            guard completing != creation else { return [:] }
            let forAuthorizer = policy.credentialsForAuthorizer(in: completing, granted)
            let old = policy.credentials(in: creation, except: granted)
            let new = policy.credentials(in: completing, except: granted)
            guard old != new, kinds(of: old) == kinds(of: new) else { return forAuthorizer }
            return new + forAuthorizer
        }
    }

    /// Whether an attempt caused by a request with `fields` has the request's credentials.
    package static func replacesCredentials(
        of creation: RequestHead,
        in fields: HTTPFields,
        policy: FieldPolicy
    ) -> Bool {
        let new = policy.credentials(in: fields, except: creation.granted)
        guard !new.isEmpty, policy.credentials == .creation else {
            return !new.isEmpty && policy.credentials == .completing
        }
        let old = policy.credentials(in: creation.fields, except: creation.granted)
        return kinds(of: old) == kinds(of: new)
    }

    /// The client's credentials in an attempt, with those that only the authorizer receives.
    package static func clientCredentials(
        of creation: RequestHead,
        completing: HTTPFields?,
        policy: FieldPolicy
    ) -> HTTPFields {
        let granted = creation.granted
        let forAuthorizer = policy.credentialsForAuthorizer(in: completing ?? [:], granted)
        if let completing, replacesCredentials(of: creation, in: completing, policy: policy) {
            return policy.credentials(in: completing, except: granted) + forAuthorizer
        }
        return forAuthorizer
            + (policy.keepsCredentials
                ? policy.credentials(in: creation.fields, except: granted) : [:])
    }

    /// The fields of an attempt's own request, with those credentials of an earlier one that it does not replace.
    ///
    /// `stored` are the earlier one's. The credentials whose names the authorizer has set or removed, which only it
    /// receives, and all others are replaced independently of each other.
    package static func merged(
        _ own: HTTPFields,
        with stored: HTTPFields,
        of creation: RequestHead,
        policy: FieldPolicy
    ) -> HTTPFields {
        let granted = creation.granted
        let isReplaced = replacesCredentials(of: creation, in: own, policy: policy)
        let forAuthorizer = policy.credentialsForAuthorizer(in: own, granted)
        return own.filter { !policy.credentialFields.contains($0.name) }
            + policy.credentials(in: isReplaced ? own : stored, except: granted)
            + (forAuthorizer.isEmpty
                ? policy.credentialsForAuthorizer(in: stored, granted) : forAuthorizer)
    }

    /// The names of the credential fields, sorted, each `Authorization` with its scheme (RFC 9110 §11.4).
    private static func kinds(of credentials: HTTPFields) -> [[UInt8]] {
        credentials.map { field in
            let scheme =
                field.name == .authorization
                ? field.value.utf8.prefix { $0 != UInt8(ascii: " ") } : ""[...].utf8
            return Array("\(field.name.canonicalName) \(Substring(scheme).lowercased())".utf8)
        }.sorted { $0.lexicographicallyPrecedes($1) }
    }

    /// The fields of a request that is passed through.
    ///
    /// Connection fields are left out, as are the Upload-* fields that would start the protocol at the upstream.
    /// `policy.forward` does not apply.
    package static func passedThrough(
        _ fields: HTTPFields,
        granted: [HTTPField.Name] = [],
        policy: FieldPolicy = FieldPolicy()
    ) -> HTTPFields {
        kept(of: fields, without: leftOutOfPassed) {
            (policy.credentials != .none || !policy.credentialFields.contains($0))
                && policy.lets($0, granted)
        }
    }

    /// Sets the operator's own fields, then the gateway's, which replace others with the same names.
    ///
    /// `via` follows a `Via` of the operator. `correlation` is set only if the rules let the field pass.
    package static func finish(
        _ fields: inout HTTPFields,
        policy: FieldPolicy,
        via: HTTPField? = nil,
        correlation: HTTPField? = nil
    ) {
        if !policy.set.isEmpty {
            let names = Set(policy.set.map(\.name.folded))
            fields.removeAll { names.contains($0.name.folded) }
            fields.append(contentsOf: policy.set)
            if let via, names.contains(via.name.folded) { fields.append(via) }
        }
        if let correlation, fields.contains(correlation.name) {
            fields[fields: correlation.name] = [correlation]
        }
    }

    /// Adds the client's `Upload-Metadata` as fields, unless another field has the name.
    ///
    /// A pair replaces only a general `Content-Type` of the client. No pair returns as a field that the authorizer has
    /// removed. Names that differ only in `_` and `-` are equal to many applications.
    ///
    /// The file's name becomes `Content-Disposition` (RFC 6266, RFC 8187), and its type `Content-Type`. Each other pair
    /// becomes a percent-encoded field if `policy` enables that.
    package static func addMetadata(
        of creation: RequestHead,
        to fields: inout HTTPFields,
        policy: FieldPolicy
    ) {
        guard creation.fields.contains(.uploadMetadata) else { return }
        let metadata = UploadMetadata(creation.fields)
        let removed = Set(creation.granted.map(\.folded))
        if metadata["filename"] != nil, !fields.contains(.contentDisposition),
            !removed.contains(HTTPField.Name.contentDisposition.canonicalName),
            !policy.strip.contains(.contentDisposition)
        {
            let name = ClientFileName(target: creation.target, fields: creation.fields)
            fields[.contentDisposition] =
                "attachment; filename*=UTF-8''" + PercentText.encode(name.text)
        }
        let own = fields[.contentType]
        let isOthers =
            removed.contains(HTTPField.Name.contentType.canonicalName)
            || policy.set.contains { $0.name == .contentType }
            || policy.strip.contains(.contentType)
        if !isOthers, let type = metadata.type(with: own), type != own {
            fields[.contentType] = type
        }
        guard let prefix = policy.metadataPrefix else { return }
        var taken = removed.union(fields.map(\.name.folded))
        taken.formUnion((policy.credentialFields + policy.strip).map(\.folded))
        for pair in metadata.others {
            guard let name = FieldPolicy.name(prefix + pair.key), !isClaim(name.folded),
                !isReserved(folded: name.folded),
                // Only the gateway sets these fields.
                !name.folded.utf8.starts(with: "spoolgate-".utf8),
                taken.insert(name.folded).inserted
            else { continue }
            // A subscript would search all fields for each pair.
            fields.append(HTTPField(name: name, value: PercentText.encode(pair.value)))
        }
    }

    /// Whether a field belongs to a connection, message framing or an upload protocol, so that operators must not set
    /// it.
    package static func isReserved(_ name: HTTPField.Name) -> Bool {
        isReserved(folded: name.folded)
    }

    private static func isReserved(folded text: String) -> Bool {
        leftOutOfWhole.contains(text) || isOfUploads(text)
    }

    private static func isOfUploads(_ name: String) -> Bool {
        name.utf8.starts(with: "upload-".utf8) || name.utf8.starts(with: "tus-".utf8)
    }

    /// The response fields that the client of an upload receives.
    ///
    /// Connection fields, message framing, Upload-* and Tus-* are left out, as is `Content-Length`, which the sender
    /// sets.
    package static func relayed(_ fields: HTTPFields) -> HTTPFields {
        kept(of: applyingConnection(fields), without: leftOutOfResponse) {
            !isOfUploads($0.canonicalName)
        }
    }

    /// The response fields that the client of a passed-through request receives.
    ///
    /// Only connection fields, framing and `Content-Length` are left out, because the upstream may use its own upload
    /// protocol.
    package static func passedBack(_ fields: HTTPFields) -> HTTPFields {
        kept(of: applyingConnection(fields), without: leftOutOfResponse)
    }

    private static func applyingConnection(_ fields: HTTPFields) -> HTTPFields {
        var fields = fields
        fields.applyConnection()
        return fields
    }

    /// The fields that mark a request of the IETF protocol.
    private static let markerNames = FieldNameSet([
        "upload-draft-interop-version", "upload-complete", "upload-incomplete",
        // The gateway or the web server has responded to the client's `Expect`; the upstream connection has its own.
        "expect",
    ])

    // One set for each direction, so that each field needs one lookup.
    private static let leftOutOfPassed = connectionNames.union(markerNames)
    private static let leftOutOfDelivered = leftOutOfWhole.union(FieldNameSet(["content-digest"]))
    // `Status` has a meaning in CGI that it lacks in HTTP (RFC 3875 §6.3.3).
    private static let leftOutOfResponse = connectionNames.union(FieldNameSet(["status"]))
    private static let leftOutOfWhole = leftOutOfPassed.union(
        FieldNameSet([
            "upload-offset", "upload-length", "upload-limit", "upload-token", "upload-metadata",
            "upload-defer-length", "upload-concat", "upload-checksum", "tus-resumable",
            "x-http-method-override", "incremental", "early-data",
        ])
    )

    /// Fields of one connection and of message framing (RFC 9110 §7.6.1, RFC 9112 §6).
    private static let connectionNames = FieldNameSet([
        "connection", "content-length", "keep-alive", "proxy", "proxy-authenticate",
        "proxy-authentication-info", "proxy-authorization", "proxy-connection", "te", "trailer",
        "transfer-encoding", "upgrade",
    ])

    /// Whether a field states the client's identity or original request.
    ///
    /// Many applications trust these fields, so only a proxy in front may set them.
    fileprivate static func isClaim(_ name: String) -> Bool {
        claims.contains(name) || name.utf8.starts(with: "x-forwarded".utf8)
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

    private static let alwaysForwarded: Set<HTTPField.Name> = [
        .contentType, .contentEncoding, .contentLanguage, .contentDisposition, .contentDigest,
        .reprDigest, .host,
    ]

    private static let partialMediaTypes = [
        UploadResources.partialMediaType, Tus.mediaType,
    ]

    /// Leaves out the fields in `leftOut`, and those for which `lets` returns false.
    private static func kept(
        of fields: HTTPFields,
        without leftOut: FieldNameSet,
        _ lets: (HTTPField.Name) -> Bool = { _ in true }
    ) -> HTTPFields {
        func isKept(_ field: HTTPField) -> Bool {
            !leftOut.contains(field.name.canonicalName) && lets(field.name)
        }
        // Usually all fields are kept, and nothing is copied.
        guard let first = fields.firstIndex(where: { !isKept($0) }) else { return fields }
        var kept = HTTPFields()
        kept.reserveCapacity(fields.count)
        for index in fields.indices where index < first || index > first && isKept(fields[index]) {
            kept.append(fields[index])
        }
        return kept
    }
}

extension FieldPolicy {
    /// Whether a field may pass; `strip` and claims concern the client's fields, not the authorizer's.
    fileprivate func lets(_ name: HTTPField.Name, _ granted: [HTTPField.Name]) -> Bool {
        granted.contains(name)
            || (forwarding == .trust || !UpstreamFields.isClaim(name.canonicalName))
                && !strip.contains(name)
    }

    /// Whether an upload's record keeps the creation's field of this name, if it is a credential.
    fileprivate func keepsCredential(_ name: HTTPField.Name, _ granted: [HTTPField.Name]) -> Bool {
        switch credentials {
        case .creation: true
        case .completing: !credentialFields.contains(name) || granted.contains(name)
        case .none: !credentialFields.contains(name)
        }
    }

    /// Whether the authorizer has set or removed the credential of this name; `granted` has all names of that kind.
    package func isGrantedCredential(_ name: HTTPField.Name, _ granted: [HTTPField.Name]) -> Bool {
        credentialFields.contains(name) && granted.contains(name)
    }

    /// The credentials of the client that only the authorizer receives, because it has set or removed their names.
    ///
    /// Empty if the route forwards no credentials.
    package func credentialsForAuthorizer(
        in fields: HTTPFields,
        _ granted: [HTTPField.Name]
    ) -> HTTPFields {
        credentials == .none ? [:] : fields.filter { isGrantedCredential($0.name, granted) }
    }

    /// The credentials of the client, without those that the authorizer has set or removed.
    fileprivate func credentials(
        in fields: HTTPFields,
        except granted: [HTTPField.Name]
    ) -> HTTPFields {
        fields.filter { credentialFields.contains($0.name) && !granted.contains($0.name) }
    }
}
