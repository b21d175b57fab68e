// In which form a route's uploads go to its upstream, as values and in the settings file.
//
// How a form is written stands in UploadForm.swift. Invariant: settings that are decoded can be carried
// out: a form that needs a file, a directory or an HTTP upstream has one named.

package import HTTPTypes
import Posix
import TextFormats
import UploadProtocol
import Upstream

/// How an upload becomes the content of one regular request.
package enum Form: String, Sendable, CaseIterable {
    /// As it is.
    case body
    /// As the file of a multipart/form-data form (RFC 7578).
    case multipart
    /// As a file in a directory of which the request tells the path.
    case path
}

/// A form field that gets its value from the settings.
package struct ConstantField: Sendable, Equatable {
    /// The form field's name.
    package var name: String
    /// Its value.
    package var value: String
}

/// A form field that gets its value from a field of the creation.
package struct CopiedField: Sendable, Equatable {
    /// The form field's name.
    package var name: String
    /// The request field's name.
    package var source: HTTPField.Name
}

/// What a `multipart` form has beside the file.
package struct MultipartSettings: Sendable, Equatable {
    /// The name of the file's form field.
    package var fileField = "file"
    /// Fields with the settings' own values.
    package var fields: [ConstantField] = []
    /// Fields with values of the creation's fields.
    package var fromFields: [CopiedField] = []
    /// Whether each pair of the client's `Upload-Metadata` becomes a field.
    package var metadata = true
}

/// How a `path` form hands a file over.
package struct PathSettings: Sendable, Equatable {
    /// How the members of a notice are written.
    package enum Encoding: String, Sendable, CaseIterable {
        /// `application/x-www-form-urlencoded`.
        case form
        /// `application/json`, one object.
        case json

        /// The `Content-Type` of the request.
        package var contentType: String {
            switch self {
            case .form: "application/x-www-form-urlencoded"
            case .json: "application/json"
            }
        }
    }

    /// How the request's content is written.
    package var encoding = Encoding.form
    /// The directory in which the upstream finds the file; nil only without a `path` form.
    package var directory: String?
    /// The file with the key of the signature; nil only without a `path` form.
    package var keyFile: String?
    /// What the upstream knows the key by; nil: it is not told.
    package var keyID: String?
    /// How long a file stays that the upstream did not answer 2xx for.
    package var retention = Duration.seconds(86_400)
}

/// Why a form cannot be.
private struct FormFault: Error {
    var reason: String
}

extension RouteSettings {
    /// Takes the settings of form and digest from a route's section.
    mutating func decodeForm(_ section: inout SettingsSection) throws(SettingsError) {
        try decodeMultipart(section.section("multipart"))
        try decodePath(section.section("path"))
        let chosen = try section.value("form", reason: \.reason) { text throws(FormFault) in
            try chosenForm(text)
        }
        form = chosen ?? form
        let algorithms = DigestAlgorithm.allCases.map(\.rawValue).joined(separator: ", ")
        digest =
            try section.value("digest", expecting: "none, \(algorithms)") { text in
                text == "none" ? .some(nil) : DigestAlgorithm(rawValue: text).map { .some($0) }
            } ?? digest
    }

    private func chosenForm(_ text: String) throws(FormFault) -> Form {
        guard let form = Form(rawValue: text) else {
            throw FormFault(reason: "it is none of body, multipart, path")
        }
        if form != .body, case .directory? = upstream.targets.first {
            throw FormFault(
                reason: "a directory: upstream takes uploads as they are; use form: body"
            )
        }
        if form == .path, path.directory == nil || path.keyFile == nil {
            throw FormFault(reason: "it needs path.directory and path.key-file")
        }
        return form
    }

    private mutating func decodeMultipart(_ section: SettingsSection) throws(SettingsError) {
        var section = section
        multipart.fileField = try section.text("file-field") ?? multipart.fileField
        multipart.fields =
            try section.pairs("fields", expecting: "a text") { name, value in
                name.isEmpty ? nil : ConstantField(name: name, value: value)
            } ?? []
        multipart.fromFields =
            try section.pairs("from-fields", expecting: "the name of a field") { name, text in
                guard !name.isEmpty, let source = HTTPField.Name(text) else { return nil }
                return CopiedField(name: name, source: source)
            } ?? []
        multipart.metadata = try section.boolean("metadata") ?? multipart.metadata
        try section.finish()
    }

    private mutating func decodePath(_ section: SettingsSection) throws(SettingsError) {
        var section = section
        path.encoding =
            try section.value("encoding", expecting: "form or json") {
                PathSettings.Encoding(rawValue: $0)
            } ?? path.encoding
        path.directory = try section.path("directory")
        path.keyFile = try section.path("key-file")
        path.keyID = try section.text("key-id")
        path.retention =
            try section.duration("retention", seconds: 3_600...31_536_000) ?? path.retention
        try section.finish()
    }

    /// The settings of form and digest as text.
    var formTable: [(key: String, value: String)] {
        [
            ("form", form.rawValue),
            ("multipart.file-field", multipart.fileField),
            (
                "multipart.fields",
                SettingsText.pairs(multipart.fields.map { ($0.name, $0.value) })
            ),
            (
                "multipart.from-fields",
                SettingsText.pairs(multipart.fromFields.map { ($0.name, $0.source.rawName) })
            ),
            ("multipart.metadata", "\(multipart.metadata)"),
            ("path.encoding", path.encoding.rawValue),
            ("path.directory", path.directory ?? ""),
            ("path.key-file", path.keyFile ?? ""),
            ("path.key-id", path.keyID ?? ""),
            ("path.retention", DurationText.text(path.retention)),
            ("digest", digest?.rawValue ?? "none"),
        ]
    }
}

/// Lists and mappings as they can be written in a settings file.
enum SettingsText {
    /// A list; empty for none.
    static func list(_ values: [String]) -> String {
        values.isEmpty ? "" : JSON.array(values.map { .string($0) }).text
    }

    /// A mapping; empty for none.
    static func pairs(_ pairs: [(String, String)]) -> String {
        pairs.isEmpty ? "" : JSON.object(pairs.map { ($0.0, .string($0.1)) }).text
    }
}
