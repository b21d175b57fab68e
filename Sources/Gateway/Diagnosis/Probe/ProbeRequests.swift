// The requests of a probe and the uploads that they create.
//
// Invariants: no creation and no append completes an upload, and each upload is remembered until it is cancelled.

import HTTPTypes
import SpoolgateCurl
import SpoolgateTextFormats
import SpoolgateUploadProtocol

struct ProbeUpload: Equatable {
    /// The path and query of the upload resource.
    var target: String
    /// The value of `Location` in the response to the creation, a URL or a path.
    var location: String
    /// The fields that each further request must contain.
    var fields: HTTPFields
    /// Whether the upload was created without the fields given as options of the command, such as a login.
    var isAnonymous = false
}

/// Sends requests one at a time.
///
/// While a request's content is sent, its callback may send another request.
final class ProbeRequests {
    let options: ProbeOptions
    var interopVersion = Dialect.versions.upperBound
    var version: ClientRequest.Version

    /// The shortest round-trip time measured on any connection; nil before the first measurement.
    private(set) var roundTrip: Duration?

    private let isStopped: () -> Bool
    private var open: [ProbeUpload] = []
    private var cancelled = 0
    private var unnamed = 0

    /// The timeout of requests with little or no content.
    private static let patience = Duration.seconds(20)

    init(_ options: ProbeOptions, isStopped: @escaping () -> Bool) {
        self.options = options
        self.isStopped = isStopped
        version = options.versions.first ?? .http1
    }

    // MARK: Sending

    /// Sends a request and waits until the transfer ends.
    ///
    /// If `canStop` is true, a signal ends the transfer early. Pass false if the request may create an upload, because
    /// the upload's URL would be lost. If `isAnonymous` is true, the fields of the options are left out.
    func send(
        _ method: HTTPRequest.Method,
        _ target: String,
        _ fields: HTTPFields = [:],
        version: ClientRequest.Version? = nil,
        content: ClientContent? = nil,
        timeout: Duration = patience,
        canStop: Bool = true,
        isAnonymous: Bool = false
    ) -> ClientTransfer {
        var request = ClientRequest(method, options.url.url(of: target), fields: fields)
        request.version = version ?? self.version
        request.content = content
        if !isAnonymous { request.fields.append(contentsOf: options.fields) }
        request.timeout = timeout
        return run(request, canStop: canStop)
    }

    /// Connects without sending a request; if `wantsNewestTLS` is true, accepts only TLS 1.3.
    func connect(wantsNewestTLS: Bool) -> ClientTransfer {
        var request = ClientRequest(.head, options.url.text)
        request.timeout = Self.patience
        request.onlyConnects = true
        request.wantsNewestTLS = wantsNewestTLS
        return run(request, canStop: true)
    }

    private func run(_ request: ClientRequest, canStop: Bool) -> ClientTransfer {
        var request = request
        request.tls.authorities = options.certificateAuthority
        let transfer = ClientTransfer(request, isStopped: canStop ? isStopped : { false })
        transfer.run()
        if transfer.roundTrip > .zero {
            roundTrip = min(roundTrip ?? transfer.roundTrip, transfer.roundTrip)
        }
        return transfer
    }

    // MARK: Uploads

    private var versionField: HTTPFields {
        [.uploadDraftInteropVersion: String(interopVersion)]
    }

    /// Creates an incomplete upload at the path `target`, or at the probed URL if `target` is nil.
    ///
    /// The returned `upload` is nil if the creation fails.
    func create(
        at target: String? = nil,
        length: Int64? = nil,
        version: ClientRequest.Version? = nil,
        content: ClientContent? = nil,
        fields further: HTTPFields = [:]
    ) -> (transfer: ClientTransfer, upload: ProbeUpload?) {
        var fields: HTTPFields = [.uploadComplete: "?0"]
        if let length { fields[.uploadLength] = String(length) }
        fields.append(contentsOf: further)
        return create(fields, own: versionField, at: target, version: version, content: content)
    }

    func createByTus(length: Int64) -> (transfer: ClientTransfer, upload: ProbeUpload?) {
        create([.uploadLength: String(length)], own: [.tusResumable: Tus.version])
    }

    /// Tries to create an upload with a made-up login instead of the fields of the options.
    func createByUnknown() -> ClientTransfer {
        let numbers = (0..<2).map { _ in String(UInt64.random(in: 0...(.max)), radix: 36) }
        let login = Base64.encode(Array("probe-\(numbers[0]):\(numbers[1])".utf8))
        var own = versionField
        own[.authorization] = "Basic \(login)"
        return create([.uploadComplete: "?0"], own: own, isAnonymous: true).transfer
    }

    /// Creates an upload; `own` are the fields that each further request must contain, too.
    private func create(
        _ fields: HTTPFields,
        own: HTTPFields,
        at target: String? = nil,
        version: ClientRequest.Version? = nil,
        content: ClientContent? = nil,
        isAnonymous: Bool = false
    ) -> (transfer: ClientTransfer, upload: ProbeUpload?) {
        let transfer = send(
            .post,
            target ?? options.url.target,
            own + fields,
            version: version,
            content: content,
            canStop: false,
            isAnonymous: isAnonymous
        )
        // If the final response was lost, the interim response still has the upload's URL.
        let heads = [transfer.head].compactMap { $0 } + transfer.interim.map(\.head)
        let location = heads.lazy.filter { [201, 104].contains($0.status.code) }
            // An upload of another application must not be cancelled.
            .filter { head in Self.ownFields.contains { head.fields.contains($0) } }
            .compactMap { $0.fields[.location] }.first
        let path = location.flatMap { $0.hasPrefix("/") ? $0 : ProbeURL($0)?.target }
        guard let location, let path else {
            // Before the first upload has been created, the server at the URL may not be the gateway.
            if transfer.head == nil, cancelled + open.count > 0 { unnamed += 1 }
            return (transfer, nil)
        }
        let upload = ProbeUpload(
            target: path,
            location: location,
            fields: own,
            isAnonymous: isAnonymous
        )
        open.append(upload)
        return (transfer, upload)
    }

    /// The gateway's response to a creation has at least one of these fields.
    private static let ownFields: [HTTPField.Name] = [
        .uploadDraftInteropVersion, .uploadOffset, .uploadComplete, .tusResumable,
    ]

    func append(
        to upload: ProbeUpload,
        at offset: Int64,
        _ content: ClientContent,
        version: ClientRequest.Version? = nil,
        fields further: HTTPFields = [:],
        timeout: Duration = patience
    ) -> ClientTransfer {
        var fields = upload.fields
        fields[.uploadOffset] = String(offset)
        fields[.uploadComplete] = "?0"
        fields[.contentType] = UploadResources.partialMediaType
        fields.append(contentsOf: further)
        return send(
            .patch,
            upload.target,
            fields,
            version: version,
            content: content,
            timeout: timeout
        )
    }

    /// Retrieves an upload's offset over a separate connection.
    func offset(of upload: ProbeUpload) -> ProbeResponse {
        ProbeResponse(send(.head, upload.target, upload.fields))
    }

    // MARK: Cancellation

    @discardableResult
    func cancel(_ upload: ProbeUpload) -> ProbeResponse {
        let isAnonymous = upload.isAnonymous
        let transfer =
            send(.delete, upload.target, upload.fields, canStop: false, isAnonymous: isAnonymous)
        let response = ProbeResponse(transfer)
        if [204, 404, 410].contains(response.status) {
            open.removeAll { $0 == upload }
            cancelled += 1
        }
        return response
    }

    /// Cancels all remaining uploads, and retries each failed cancellation once.
    func cancelAll() -> CleanupEvidence {
        var left: [(address: String, response: ProbeResponse)] = []
        for upload in open {
            var response = cancel(upload)
            if open.contains(upload) { response = cancel(upload) }
            if open.contains(upload) { left.append((upload.location, response)) }
        }
        return CleanupEvidence(cancelled: cancelled, left: left, unnamed: unnamed)
    }
}
