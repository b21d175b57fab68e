// The size and age limits of uploads, and `Upload-Limit`.
//
// No other code compares a size with `max-size`. Invariant: the field is a Dictionary of valid Integers.

import SpoolgateTextFormats

/// The limits of one route (draft-12 §4.1.4); sizes in bytes, ages in seconds.
package struct UploadLimits: Sendable, Equatable {
    /// The maximum size of a representation; must be positive.
    package var maxSize: Int64
    /// The minimum size of an upload that can be resumed; 0 makes all uploads resumable.
    ///
    /// A request that contains a whole upload of a smaller, known length is an ordinary request.
    package var minSize: Int64
    /// The maximum content size of one creation or append; nil if unlimited.
    package var maxAppendSize: Int64?
    /// The lifetime of an upload after its last activity; must be positive.
    package var maxAge: Int64

    /// The largest size that can be announced, fifteen digits (RFC 9651 §3.3.1).
    package static let maximumSize: Int64 = 999_999_999_999_999

    /// Creates limits from their parts.
    package init(
        maxSize: Int64,
        minSize: Int64 = 0,
        maxAppendSize: Int64? = nil,
        maxAge: Int64
    ) {
        self.maxSize = maxSize
        self.minSize = minSize
        self.maxAppendSize = maxAppendSize
        self.maxAge = maxAge
    }

    /// Returns the refusal of an upload that is too large, with 413 (draft-12 §4.1.4).
    ///
    /// `size` is the size of the whole upload in bytes that is known so far. The result is nil if the size is allowed
    /// or unknown.
    package func refusal(ofSize size: Int64?) -> Refusal? {
        size ?? 0 > maxSize ? tooLarge : nil
    }

    package var tooLarge: Refusal { .tooLarge(maxSize: maxSize) }

    /// Returns the value of `Upload-Limit`, such as `max-size=1000, min-size=0, max-age=3600`.
    ///
    /// `remainingAge` is the time from this response to the upload's expiry, in seconds; if nil, `maxAge` is used.
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
        text.put(", ")
        text.put(text: lifetimeKey)
        put("=", remainingAge ?? maxAge)
        return text.text
    }
}
