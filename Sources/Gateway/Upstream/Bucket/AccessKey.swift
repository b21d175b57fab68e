// The key that signs requests to a bucket, read from the environment or from a file in one of two forms.
//
//   AKIAIOSFODNN7EXAMPLE          [default]
//   wJalrXUtnFEMI/...             aws_access_key_id = AKIAIOSFODNN7EXAMPLE
//   (optional session token)      aws_secret_access_key = wJalrXUtnFEMI/...
//
// Invariant: errors and descriptions contain no part of the key.

import SpoolgatePosix
import SpoolgateTextFormats

/// Why an access key could not be read.
package struct AccessKeyFault: Error, Equatable {
    /// One sentence for the operator, without any byte of the key file.
    package var reason: String
}

struct AccessKey: CustomStringConvertible {
    let id: String
    let secret: String
    /// The session token of a temporary key.
    let token: String?

    let description = "an access key"

    /// The maximum size of a key file in bytes.
    private static let limit = 64 << 10

    /// Reads a file, which must not be readable by others or writable by its group.
    init(file: String) throws(AccessKeyFault) {
        let bytes: [UInt8]
        do throws(SystemError) {
            bytes = try SecretFile.read(file, limit: Self.limit)
        } catch {
            throw AccessKeyFault(reason: error.reason(ofSecret: "the access key"))
        }
        do throws(AccessKeyFault) {
            try self.init(text: String(decoding: bytes, as: UTF8.self))
        } catch {
            throw AccessKeyFault(reason: "\(file) \(error.reason)")
        }
    }

    init(environment: (String) -> String?) throws(AccessKeyFault) {
        func value(_ name: String) -> String? {
            environment(name).flatMap { $0.isEmpty ? nil : $0 }
        }
        let names = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"]
        let values = names.map(value)
        for (name, value) in zip(names, values).prefix(2) where value == nil {
            throw AccessKeyFault(
                reason:
                    "\(name) is not set; set it for the service, or set s3.credentials to a file"
            )
        }
        do throws(AccessKeyFault) {
            try self.init(values.compactMap { $0.map { Substring($0) } })
        } catch {
            throw AccessKeyFault(
                reason: "\(names[0]) and related variables: the access key \(error.reason)"
            )
        }
    }

    /// Reads the text of a key file.
    ///
    /// The reason of an error completes a sentence that begins with the file's name.
    init(text: String) throws(AccessKeyFault) {
        let lines = text.split { $0 == "\n" || $0 == "\r\n" }
            .map { Substring($0).withoutOuterWhitespace }
            .filter { !$0.isEmpty && !$0.hasPrefix("#") && !$0.hasPrefix(";") }
        let values =
            lines.contains { $0.hasPrefix("[") } ? try Self.inSection(lines) : lines.map { $0 }
        guard (2...3).contains(values.count) else {
            throw AccessKeyFault(
                reason:
                    "has \(values.count == 1 ? "1 line" : "\(values.count) lines"); it must have two lines, the key's ID and "
                    + "secret, and optionally a third, a session token, or be a file of the AWS tools with a "
                    + "section [default]"
            )
        }
        try self.init(values)
    }

    private init(_ values: [Substring]) throws(AccessKeyFault) {
        guard values.allSatisfy({ $0.utf8.allSatisfy { (0x21...0x7e).contains($0) } }),
            !values[0].contains("/"), !values[0].contains(",")
        else {
            throw AccessKeyFault(
                reason: "has spaces or other characters that an access key cannot have"
            )
        }
        id = String(values[0])
        secret = String(values[1])
        token = values.count > 2 ? String(values[2]) : nil
    }

    /// Returns the key's ID, its secret and, for a temporary key, its session token from the section `default`.
    private static func inSection(_ lines: [Substring]) throws(AccessKeyFault) -> [Substring] {
        guard let start = lines.firstIndex(of: "[default]") else {
            throw AccessKeyFault(reason: "has no section [default]")
        }
        var values: [Substring: Substring] = [:]
        for line in lines[(start + 1)...].prefix(while: { !$0.hasPrefix("[") }) {
            let parts = line.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            guard parts.count == 2 else { continue }
            values[parts[0].withoutOuterWhitespace] = parts[1].withoutOuterWhitespace
        }
        guard let id = values["aws_access_key_id"], !id.isEmpty,
            let secret = values["aws_secret_access_key"], !secret.isEmpty
        else {
            throw AccessKeyFault(
                reason: "lacks aws_access_key_id or aws_secret_access_key in its section [default]"
            )
        }
        let token = values["aws_session_token"].flatMap { $0.isEmpty ? nil : $0 }
        return [id, secret] + (token.map { [$0] } ?? [])
    }
}

extension BucketSettings {
    /// The error in the access key, read now; nil if the key is valid.
    package var accessKeyFault: AccessKeyFault? {
        Result { () throws(AccessKeyFault) in try accessKey }.failure
    }

    var accessKey: AccessKey {
        get throws(AccessKeyFault) {
            switch credentials {
            case .file(let path)?: return try AccessKey(file: path)
            case .environment?: return try AccessKey(environment: Listener.processEnvironment)
            case nil: throw AccessKeyFault(reason: "s3.credentials is not set")
            }
        }
    }
}
