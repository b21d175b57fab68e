// The limits an upload is held to, and the Upload-Limit field that tells them.
//
// Here alone a size is compared with `max-size`. Invariant: the field's value is a Dictionary of Integers that the
// structured-field grammar can hold.

import SpoolgateTextFormats

/// The limits of one route (draft-12 §4.1.4); sizes in bytes, ages in seconds.
package struct UploadLimits: Sendable, Equatable {
    /// Most bytes of a whole representation; > 0.
    package var maxSize: Int64
    /// Complete uploads of a known length below this are ordinary requests; 0 offers resumption to
    /// all.
    package var minSize: Int64
    /// Most bytes of content in one creation or append; nil: no such limit.
    package var maxAppendSize: Int64?
    /// Least bytes of content in one append that does not complete the upload; 0: no such limit.
    package var minAppendSize: Int64
    /// Seconds an upload is kept after its last activity; > 0.
    package var maxAge: Int64

    /// The largest size that can be told: fifteen digits (RFC 9651 §3.3.1).
    package static let mostSize: Int64 = 999_999_999_999_999

    /// Makes limits from their parts.
    package init(
        maxSize: Int64,
        minSize: Int64 = 0,
        maxAppendSize: Int64? = nil,
        minAppendSize: Int64 = 0,
        maxAge: Int64
    ) {
        self.maxSize = maxSize
        self.minSize = minSize
        self.maxAppendSize = maxAppendSize
        self.minAppendSize = minAppendSize
        self.maxAge = maxAge
    }

    /// Why an upload of `size` bytes is not taken: 413 (draft-12 §4.1.4).
    ///
    /// - Parameter size: bytes of the whole, as far as they are known; nil: they are not.
    /// - Returns: the refusal; nil if it is taken.
    package func refusal(ofSize size: Int64?) -> Refusal? {
        size ?? 0 > maxSize ? tooLarge : nil
    }

    /// 413, for content that went on beyond `max-size`.
    package var tooLarge: Refusal { .tooLarge(maxSize: maxSize) }

    /// The value of `Upload-Limit`.
    ///
    /// - Parameters:
    ///   - lifetimeKey: the dialect's key for the lifetime.
    ///   - remainingAge: seconds the upload will still be kept, counted from this response; nil:
    ///     `maxAge`.
    /// - Returns: such as `max-size=1000, min-size=0, max-age=3600`.
    package func fieldValue(_ lifetimeKey: String, remainingAge: Int64? = nil) -> String {
        var text = ByteBuilder(room: 128)
        func put(_ key: StaticString, _ value: Int64) {
            text.put(key)
            text.put(decimal: min(max(value, 0), StructuredField.maxInteger))
        }
        put("max-size=", maxSize)
        // An authorizer may have lowered the maximum.
        put(", min-size=", min(minSize, maxSize))
        if let maxAppendSize { put(", max-append-size=", maxAppendSize) }
        if minAppendSize > 0 { put(", min-append-size=", min(minAppendSize, maxSize)) }
        text.put(", ")
        text.put(text: lifetimeKey)
        put("=", remainingAge ?? maxAge)
        return text.text
    }
}
