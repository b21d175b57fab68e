// The description of an upload's file in a form: name, type, digests and the client's metadata.
//
// Pure. Invariant: the client's values never replace those of the settings or the gateway.

import HTTPTypes
import SpoolgateCrypto
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import SpoolgateUpstream

struct FileDescription {
    let creation: UploadCreation
    let name: ClientFileName
    private let type: String
    private let length: Int64
    private let digests: [(key: String, value: String)]
    private let metadata: [(key: String, value: String)]

    init(_ creation: UploadCreation, length: Int64, _ digests: UploadDigests) {
        let fields = creation.head.fields
        let metadata = UploadMetadata(fields)
        self.creation = creation
        name = ClientFileName(target: creation.head.target, fields: fields)
        let own = UpstreamFields.delivered(fields)[.contentType]
        let isGranted = creation.head.granted.contains(.contentType)
        let type = (isGranted ? own : metadata.type(with: own)) ?? MediaType.any
        // The upstream would parse a part of a multipart type as nested parts.
        self.type = MediaType.isMultipart(type) ? MediaType.any : type
        self.length = length
        self.digests = digests.texts { digests.plan.reported.contains($0) }
        self.metadata = metadata.others
    }

    private var coding: String? {
        creation.head.fields[.contentEncoding]
            .flatMap { $0.isEmpty || $0 == "identity" ? nil : $0 }
    }

    func multipart(_ settings: MultipartSettings) -> MultipartForm {
        var own = settings.fields.map { ($0.name, $0.value) }
        for field in settings.fromFields {
            if let value = creation.head.fields[field.source] { own.append((field.name, value)) }
        }
        own += digests.map { ($0.key, $0.value) }
        if let coding { own.append(("content-encoding", coding)) }
        // A field that is missing in the request does not hide metadata, unless the authorizer has removed it.
        let copied = settings.fromFields.filter {
            creation.head.fields.contains($0.source) || creation.head.granted.contains($0.source)
        }
        let names =
            settings.fields.map(\.name) + copied.map(\.name)
            + DigestAlgorithm.integrity.map(\.rawValue) + ["content-encoding", settings.fileField]
        let taken = Set(names.map { FormFieldName.key($0) })
        // If two fields have the same name, most readers use the last.
        let fields =
            metadata.filter { !taken.contains(FormFieldName.key($0.key)) }
            .map { (name: $0.key, value: $0.value) } + own.map { (name: $0.0, value: $0.1) }
        return MultipartForm(
            boundary: "spoolgate" + RandomToken.make(),
            fields: fields,
            file: (settings.fileField, name.text, type)
        )
    }

    /// The notice for a file handed over at `path`, without time and signature.
    func notice(path: String) -> HandoverNotice {
        var notice = HandoverNotice()
        notice.add("upload", "\(creation.id)")
        notice.add("target", creation.head.target)
        notice.add("path", path)
        notice.add("size", String(length))
        notice.add("content-type", type)
        if let coding { notice.add("content-encoding", coding) }
        notice.add("name", name.text)
        for digest in digests { notice.add(digest.key, digest.value) }
        if let owner = creation.principal { notice.add("owner", owner.text) }
        if !metadata.isEmpty {
            let object = JSON.object(metadata.map { ($0.key, .string($0.value)) })
            notice.add("metadata", object.text)
        }
        return notice
    }
}
