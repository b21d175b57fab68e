// What a representation is recognised by, so that parts of two are never put together (RFC 9110 §8.8, §13.1.5, §15.3.7.3).
//
// Values only. The invariant: what `validator` gives is strong.

import HTTPTypes
import SpoolgatePosix
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// What a response says of the representation that its content is of.
struct Representation {
    /// Its entity tag as it came, weak or strong.
    private(set) var tag: String?
    /// Its `Last-Modified` as it came.
    private(set) var modified: String?
    /// The `Date` of the response that said so.
    private(set) var date: String?
    /// Bytes of the whole; nil: not known.
    private(set) var total: Int64?
    /// Its digest; nil: none that is known here.
    private(set) var digest: DownloadDigest?

    /// By how many seconds `Date` has to be later than `Last-Modified`.
    ///
    /// RFC 9110 §8.8.2.2 wants one second and clocks that are the same, or a difference that makes it unlikely that they
    /// are not; RFC 7232 §2.2.2 had a minute for that.
    static let distance: Int64 = 60
    /// Why a representation without a validator is not resumed, as a part of a sentence.
    static let absence =
        "the server sends no strong validator (an ETag, or a Last-Modified a minute before Date)"

    /// Reads a response's fields; `total` is what its framing or its range says.
    init(_ fields: HTTPFields, total: Int64?) {
        tag = fields.value(of: .eTag)
        modified = fields.value(of: .lastModified)
        date = fields.value(of: .date)
        self.total = total
        digest = DownloadDigest(fields)
    }

    /// What a token says.
    init(_ token: Download.Token) {
        let isTag = Self.isStrong(token.validator) || Self.isWeak(token.validator)
        tag = isTag ? token.validator : nil
        modified = isTag ? token.lastModified : token.validator
        date = token.date
        total = token.total
        digest = token.digest.flatMap { DownloadDigest(value: $0) }
    }

    /// What `If-Range` may have: a strong entity tag or, if there is no weak one, a date that is strong; nil: nothing.
    var validator: String? {
        if let tag, Self.isStrong(tag) { return tag }
        if let tag, Self.isWeak(tag) { return nil }
        let now = WallTime.now.seconds
        guard let modified, let date, let changed = HTTPDate.seconds(modified, now: now),
            let told = HTTPDate.seconds(date, now: now), told - changed >= Self.distance
        else { return nil }
        return modified
    }

    /// Whether it has anything to recognise it by, weak or strong.
    var isNamed: Bool { tag != nil || modified != nil }

    /// Learns what a part of it says and the beginning did not.
    mutating func learn(from part: Representation) {
        total = total ?? part.total
        digest = digest ?? part.digest
    }

    /// Why `part` is not of this representation: the end of a sentence; nil: nothing tells that.
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

    /// Whether a part with this tag is of another representation; some proxies mark each tag as weak on its way.
    private func isOther(_ other: String) -> Bool {
        guard let tag else { return !Self.isWeak(other) }
        return !other.hasSameBytes(as: tag) && !other.hasSameBytes(as: "W/" + tag)
    }

    private func isSameDate(_ one: String, _ other: String) -> Bool {
        if one.hasSameBytes(as: other) { return true }
        let seconds = HTTPDate.seconds(one, now: WallTime.now.seconds)
        return seconds != nil && seconds == HTTPDate.seconds(other, now: WallTime.now.seconds)
    }

    /// One tag in quotes, with no quote or control character inside.
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
