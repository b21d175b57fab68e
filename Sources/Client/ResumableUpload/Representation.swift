// Identifies a representation, so that parts of different ones are never combined (RFC 9110 §8.8, §13.1.5, §15.3.7.3).
//
// Values only. The invariant: `validator` is always strong.

import HTTPTypes
import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol

struct Representation {
    /// The entity tag as received, weak or strong.
    private(set) var tag: String?
    private(set) var modified: String?
    private(set) var date: String?
    /// The length of the whole in bytes; nil if unknown.
    private(set) var total: Int64?
    private(set) var digest: DownloadDigest?

    /// The number of seconds that `Date` must be later than `Last-Modified`.
    ///
    /// RFC 9110 §8.8.2.2 requires one second if both dates are from the same clock, or else a difference that makes the
    /// clocks unlikely to matter. RFC 7232 §2.2.2 had a minute.
    static let distance: Int64 = 60
    /// The reason why a representation without a validator is not resumed, as a part of a sentence.
    static let absence =
        "the server sends no strong validator (an ETag, or a Last-Modified a minute before Date)"

    /// `total` is the length in bytes according to the framing or the range; nil if unknown.
    init(_ fields: HTTPFields, total: Int64?) {
        tag = fields.value(of: .eTag)
        modified = fields.value(of: .lastModified)
        date = fields.value(of: .date)
        self.total = total
        digest = DownloadDigest(fields)
    }

    init(_ token: Download.Token) {
        let isTag = Self.isStrong(token.validator) || Self.isWeak(token.validator)
        tag = isTag ? token.validator : nil
        modified = isTag ? token.lastModified : token.validator
        date = token.date
        total = token.total
        digest = token.digest.flatMap { DownloadDigest(value: $0) }
    }

    /// The value for `If-Range`: a strong entity tag or, if there is no entity tag, a strong date.
    var validator: String? {
        if let tag, Self.isStrong(tag) { return tag }
        if let tag, Self.isWeak(tag) { return nil }
        let now = WallTime.now.seconds
        guard let modified, let date, let changed = HTTPDate.seconds(modified, now: now),
            let stated = HTTPDate.seconds(date, now: now), stated - changed >= Self.distance
        else { return nil }
        return modified
    }

    /// Whether the representation has an entity tag or a date, weak or strong.
    var isNamed: Bool { tag != nil || modified != nil }

    mutating func learn(from part: Representation) {
        total = total ?? part.total
        digest = digest ?? part.digest
    }

    /// Returns why `part` belongs to another representation, as the end of a sentence; nil if it does not.
    func difference(from part: Representation) -> String? {
        if let other = part.tag, isOther(other) {
            return "the part has the ETag \(other), but the beginning had \(tag ?? "none")"
        }
        if let modified, let other = part.modified, !isSameDate(modified, other) {
            return "the part was modified \(other), but the beginning \(modified)"
        }
        if let total, let other = part.total, total != other {
            return "the part is one of \(other) bytes, but the beginning is one of \(total)"
        }
        if let digest, let other = part.digest, !digest.agrees(with: other) {
            return "the part has Repr-Digest \(other.value), but the beginning had \(digest.value)"
        }
        return nil
    }

    /// Returns whether an entity tag belongs to another representation; some proxies turn strong tags into weak ones.
    private func isOther(_ other: String) -> Bool {
        guard let tag else { return !Self.isWeak(other) }
        return !other.hasSameBytes(as: tag) && !other.hasSameBytes(as: "W/" + tag)
    }

    private func isSameDate(_ one: String, _ other: String) -> Bool {
        if one.hasSameBytes(as: other) { return true }
        let seconds = HTTPDate.seconds(one, now: WallTime.now.seconds)
        return seconds != nil && seconds == HTTPDate.seconds(other, now: WallTime.now.seconds)
    }

    /// Returns whether the text is in quotes, without a quote or control character inside.
    private static func isStrong(_ tag: String) -> Bool {
        let bytes = tag.utf8
        return bytes.count >= 2 && bytes.first == UInt8(ascii: "\"")
            && bytes.last == UInt8(ascii: "\"")
            && bytes.dropFirst().dropLast().allSatisfy {
                $0 != UInt8(ascii: "\"") && $0 >= 0x20 && $0 != 0x7f
            }
    }

    private static func isWeak(_ tag: String) -> Bool {
        tag.beginsWithBytes(of: "W/") || tag.beginsWithBytes(of: "w/")
    }
}
