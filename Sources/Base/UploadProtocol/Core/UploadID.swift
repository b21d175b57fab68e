// The identifier of one upload: 128 random bits in 26 characters.
//
// No other text from a client becomes part of a file name. Invariant: an identifier has exactly one spelling.

import SpoolgateTextFormats

/// An upload's identifier, unguessable and never reused (draft-12 §4, §13).
package struct UploadID: Hashable, Sendable, CustomStringConvertible {
    private let high: UInt64
    private let low: UInt64

    package static let characterCount = 26

    /// Creates an identifier from 128 random bits.
    package init(high: UInt64, low: UInt64) {
        self.high = high
        self.low = low
    }

    /// Parses the 26-character form; returns nil for any other text, including upper case.
    package init?(_ text: some StringProtocol) {
        self.init(bytes: text.utf8)
    }

    /// Parses the 26-character form from its bytes; returns nil for any other bytes.
    package init?(bytes: some Collection<UInt8>) {
        var (high, low): (UInt64, UInt64) = (0, 0)
        var count = 0
        var last: UInt8 = 0
        for byte in bytes {
            switch byte {
            case UInt8(ascii: "0")...UInt8(ascii: "9"): last = byte - UInt8(ascii: "0")
            case UInt8(ascii: "a")...UInt8(ascii: "v"): last = byte - UInt8(ascii: "a") + 10
            default: return nil
            }
            count += 1
            guard count <= UploadID.characterCount else { return nil }
            // The first 25 characters carry five bits each; the last carries three, and two bits of padding.
            if count < UploadID.characterCount {
                (high, low) = (high << 5 | low >> 59, low << 5 | UInt64(last))
            } else {
                (high, low) = (high << 3 | low >> 61, low << 3 | UInt64(last >> 2))
            }
        }
        guard count == UploadID.characterCount, last & 3 == 0 else { return nil }
        (self.high, self.low) = (high, low)
    }

    /// The identifier as 26 characters from `0-9a-v` (RFC 4648 §7, lower case, no padding).
    package var description: String {
        String(unsafeUninitializedCapacity: Self.characterCount) { characters in
            write(to: characters)
            return Self.characterCount
        }
    }

    /// Calls `body` with the 26 characters.
    ///
    /// The function is not generic, because a generic result would be three times as slow.
    package func withCharacters(_ body: (UnsafeBufferPointer<UInt8>) -> Void) {
        withUnsafeTemporaryAllocation(of: UInt8.self, capacity: Self.characterCount) { characters in
            write(to: characters)
            body(UnsafeBufferPointer(characters))
        }
    }

    private static let digits: StaticString = "0123456789abcdefghijklmnopqrstuv"

    private func write(to characters: UnsafeMutableBufferPointer<UInt8>) {
        var (high, low) = (high, low)
        let digits = Self.digits.utf8Start
        for position in 0..<Self.characterCount {
            characters[position] = digits[Int(high >> 59)]
            (high, low) = (high << 5 | low >> 59, low << 5)
        }
    }
}

// MARK: Upload resources

// The paths of upload resources.
//
// Paths are compared as sent, byte by byte, so that an upload resource has only one spelling. Invariant: match(path(of:
// id)) is that id.

/// The naming scheme of a route's upload resources.
///
/// A path is `<prefix><id>` or, if `prefix` is nil, `<creation path>/upload-resource/<id>`. If `node` is not nil,
/// `<node>/<id>` replaces `<id>`.
package struct UploadResources: Sendable, Equatable {
    /// A fixed path prefix that ends in `/`; if nil, an upload resource is below the path of its creation.
    package var prefix: String?
    /// The name of this gateway if several gateways share a service; otherwise nil.
    package var node: String?

    /// Creates a naming scheme.
    package init(prefix: String? = nil, node: String? = nil) {
        self.prefix = prefix
        self.node = node
    }

    /// Whether a text is a node name: 1 to 8 lower-case letters and digits, shorter than any identifier.
    package static func isNode(_ text: some Collection<UInt8>) -> Bool {
        !text.isEmpty && text.prefix(9).count < 9
            && text.allSatisfy { $0.isDigit || (0x61...0x7a).contains($0) }
    }

    package static let allowedMethods = "HEAD, GET, PATCH, DELETE, OPTIONS"
    /// The media type of an append's content (draft-12 §6).
    package static let partialMediaType = "application/partial-upload"

    /// The maximum length of a path in bytes, so that request lines stay below web servers' 8 KiB limit.
    package static let longestPath = 8_000

    /// The resource that a path names.
    package enum Match: Equatable, Sendable {
        case none
        case resource(UploadID)
        case status(UploadID)
        /// A resource of another node.
        indirect case elsewhere(Match)
        /// A path in the form of an upload resource, but without a valid identifier; it receives 404.
        case malformed
    }

    /// Returns the resource that `path` names.
    ///
    /// `path` must not contain a query.
    package func match(_ path: some StringProtocol) -> Match {
        path.utf8.withContiguousStorageIfAvailable { match($0) }
            ?? Array(path.utf8).withUnsafeBufferPointer { match($0) }
    }

    /// Returns the resource that the path of a request target names.
    package func match(target: String) -> Match {
        var target = target
        return target.withUTF8 { bytes in
            let end = bytes.index(of: UInt8(ascii: "?"), from: 0) ?? bytes.count
            return match(UnsafeBufferPointer(rebasing: bytes[..<end]))
        }
    }

    private func match(_ bytes: UnsafeBufferPointer<UInt8>) -> Match {
        guard let start = nameStart(bytes) else { return .none }
        let name = UnsafeBufferPointer(rebasing: bytes[start...])
        guard let end = name.index(of: UInt8(ascii: "/"), from: 0),
            UploadResources.isNode(name[..<end])
        else { return match(name: name) }
        let match = match(name: UnsafeBufferPointer(rebasing: name[(end + 1)...]))
        if let node, name[..<end].elementsEqual(node.utf8) { return match }
        return match == .malformed ? .malformed : .elsewhere(match)
    }

    private func match(name: UnsafeBufferPointer<UInt8>) -> Match {
        if let id = UploadID(bytes: name) { return .resource(id) }
        let suffix = UploadResources.statusSuffix.utf8
        if name.suffix(suffix.count).elementsEqual(suffix),
            let id = UploadID(bytes: name.dropLast(suffix.count))
        {
            return .status(id)
        }
        return .malformed
    }

    /// Returns the path of the upload resource for a creation at `creationPath`, which must not contain a query.
    package func path(of id: UploadID, creationPath: some StringProtocol) -> String {
        var path = ByteBuilder(room: 128)
        if let prefix {
            path.put(text: prefix)
        } else {
            // The marker already contains the slash.
            var text = String(creationPath)
            if text.utf8.last == UInt8(ascii: "/") { text.removeLast() }
            path.put(text: text)
            path.put(UploadResources.marker)
        }
        if let node {
            path.put(text: node)
            path.put("/")
        }
        id.withCharacters { path.put($0) }
        return path.text
    }

    package static let statusSuffix = "/status"

    private static let marker: StaticString = "/upload-resource/"

    /// The index of the upload's name in its path; nil for other paths.
    private func nameStart(_ path: UnsafeBufferPointer<UInt8>) -> Int? {
        if let prefix { return path.starts(with: prefix.utf8) ? prefix.utf8.count : nil }
        let marker = UploadResources.marker
        var start = path.count - marker.utf8CodeUnitCount
        while start >= 0 {
            let rest = UnsafeBufferPointer(rebasing: path[start...])
            if path[start] == UInt8(ascii: "/"), rest.hasPrefix(marker) {
                return start + marker.utf8CodeUnitCount
            }
            start -= 1
        }
        return nil
    }
}
