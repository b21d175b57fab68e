// Which fields go to a route's upstream, in the settings file.
//
// What the rules mean stands in FieldPolicy.swift and UpstreamFields.swift.

import HTTPTypes
import UploadProtocol
import Upstream

extension RouteSettings {
    private static let nameForms =
        "the name of a field that may be decided on: none of connections, framing or Upload-*"

    /// Takes the settings of fields from a route's section.
    mutating func decodeFields(_ section: inout SettingsSection) throws(SettingsError) {
        var named = try section.section("fields")
        fields.forward = try named.values("forward", expecting: Self.nameForms) {
            FieldPolicy.name($0)
        }
        fields.strip =
            try named.values("strip", expecting: Self.nameForms) { FieldPolicy.name($0) } ?? []
        fields.set =
            try named.pairs("set", expecting: "\(Self.nameForms), and a value for it") {
                name,
                value in
                guard let name = FieldPolicy.name(name), HTTPField.isValidValue(value) else {
                    return nil
                }
                return HTTPField(name: name, value: value)
            } ?? []
        try named.finish()
        let forwardings = FieldPolicy.Forwarding.allCases.map(\.rawValue).joined(separator: ", ")
        fields.forwarding =
            try section.value("forwarding", expecting: "one of \(forwardings)") {
                FieldPolicy.Forwarding(rawValue: $0)
            } ?? fields.forwarding
        fields.trustsForwarded =
            try section.boolean("trust-forwarded") ?? fields.trustsForwarded
        let credentials = FieldPolicy.Credentials.allCases.map(\.rawValue).joined(separator: ", ")
        fields.credentials =
            try section.value("credentials", expecting: "one of \(credentials)") {
                FieldPolicy.Credentials(rawValue: $0)
            } ?? fields.credentials
        fields.credentialFields +=
            try section.values("credential-fields", expecting: Self.nameForms) {
                FieldPolicy.name($0)
            } ?? []
    }

    /// The settings of fields as text.
    var fieldTable: [(key: String, value: String)] {
        let ownCredentials = fields.credentialFields.dropFirst(
            FieldPolicy().credentialFields.count
        )
        return [
            ("fields.forward", fields.forward.map { SettingsText.list($0.map(\.rawName)) } ?? ""),
            ("fields.strip", SettingsText.list(fields.strip.map(\.rawName))),
            ("fields.set", SettingsText.pairs(fields.set.map { ($0.name.rawName, $0.value) })),
            ("forwarding", fields.forwarding.rawValue),
            ("trust-forwarded", "\(fields.trustsForwarded)"),
            ("credentials", fields.credentials.rawValue),
            ("credential-fields", SettingsText.list(ownCredentials.map(\.rawName))),
        ]
    }
}
