// What is needed to go on with an upload, in this process or in another one.
//
// Values only. The invariant: a token holds no credentials, and its text can be read back.

import SpoolgateTextFormats

/// What is needed to go on with an upload later.
///
/// It holds no credentials: `UploadOptions` has them, each time. Who has the token can still find the upload
/// where the server asks for none, so keep it like a secret.
///
/// ```swift
/// let text = token.text
/// let again = ResumeToken(text)
/// ```
public struct ResumeToken: Codable, Sendable, Equatable {
    /// The upload resource, an absolute URL.
    public var url: String
    /// Where the upload was created, an absolute URL.
    public var target: String
    /// Bytes of the whole body; nil: not known yet.
    public var length: Int64?
    /// The interop version that the server took; nil: none is named.
    public var interopVersion: Int?
    /// What the body is recognised by: size, time of change and number of a file; nil: a stream.
    public var fingerprint: String?
    /// Whether the last byte may have been sent, after which the server may have used the upload.
    public var mayBeComplete: Bool

    /// Makes a token of its parts.
    public init(
        url: String,
        target: String,
        length: Int64? = nil,
        interopVersion: Int? = 10,
        fingerprint: String? = nil,
        mayBeComplete: Bool = false
    ) {
        self.url = url
        self.target = target
        self.length = length
        self.interopVersion = interopVersion
        self.fingerprint = fingerprint
        self.mayBeComplete = mayBeComplete
    }

    /// The token as one line of ASCII without a line end.
    public var text: String {
        TokenText.write(
            "upload",
            [
                ("url", url), ("target", target), ("length", length.map { String($0) }),
                ("version", interopVersion.map { String($0) }), ("fingerprint", fingerprint),
                ("complete", mayBeComplete ? "maybe" : nil),
            ]
        )
    }

    /// Reads a text that `text` gave; nil for anything else.
    public init?(_ text: String) {
        guard let parts = TokenText.read("upload", text), let url = parts["url"],
            let target = parts["target"], URLText(url) != nil, URLText(target) != nil,
            let length = TokenText.number(parts["length"]),
            let version = TokenText.number(parts["version"])
        else { return nil }
        self.init(
            url: url,
            target: target,
            length: length,
            interopVersion: version.flatMap { Int(exactly: $0) },
            fingerprint: parts["fingerprint"],
            mayBeComplete: parts["complete"] != nil
        )
    }
}

/// What is needed to go on with a download later.
public struct DownloadToken: Codable, Sendable, Equatable {
    /// What is downloaded, an absolute URL.
    public var url: String
    /// Bytes that have come.
    public var offset: Int64
    /// What the representation is recognised by: its strong entity tag, or its `Last-Modified` date.
    public var validator: String
    /// What it is verified by, the value of a `Repr-Digest`; nil: it is not.
    public var digest: String?

    /// Makes a token of its parts.
    public init(url: String, offset: Int64, validator: String, digest: String? = nil) {
        self.url = url
        self.offset = offset
        self.validator = validator
        self.digest = digest
    }

    /// The token as one line of ASCII without a line end.
    public var text: String {
        TokenText.write(
            "download",
            [
                ("url", url), ("offset", String(offset)), ("validator", validator),
                ("digest", digest),
            ]
        )
    }

    /// Reads a text that `text` gave; nil for anything else.
    public init?(_ text: String) {
        guard let parts = TokenText.read("download", text), let url = parts["url"],
            URLText(url) != nil, let offset = parts["offset"].flatMap({ Int64(digits: $0) }),
            let validator = parts["validator"]
        else { return nil }
        self.init(url: url, offset: offset, validator: validator, digest: parts["digest"])
    }
}

/// The text of tokens: `v1 KIND name=value name=value`, values percent-encoded.
private enum TokenText {
    static func write(_ kind: String, _ parts: [(name: String, value: String?)]) -> String {
        let words = parts.compactMap { part in
            part.value.map { "\(part.name)=\(PercentText.encode($0))" }
        }
        return (["v1", kind] + words).joined(separator: " ")
    }

    /// The parts; those of a newer writer are among them.
    static func read(_ kind: String, _ text: String) -> [String: String]? {
        let words = text.split { $0.isWhitespace }
        guard words.count > 2, words[0] == "v1", words[1] == kind else { return nil }
        var parts: [String: String] = [:]
        for word in words.dropFirst(2) {
            guard let sign = word.firstIndex(of: "=") else { return nil }
            let value = PercentText.decode(word[word.index(after: sign)...].utf8)
            guard parts[String(word[..<sign])] == nil,
                let text = String(validating: value, as: UTF8.self)
            else { return nil }
            parts[String(word[..<sign])] = text
        }
        return parts
    }

    /// An optional number: nil inside is absent, nil outside is no number.
    static func number(_ text: String?) -> Int64?? {
        guard let text else { return .some(nil) }
        guard let number = Int64(digits: text) else { return nil }
        return .some(number)
    }
}
