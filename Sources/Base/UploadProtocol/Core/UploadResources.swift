// The paths of upload resources.
//
// Paths are compared as sent, byte by byte, so that an upload resource has only one spelling. Invariant: match(path(of:
// id)) is that id.

import SpoolgateTextFormats

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
    package static func isNode(_ text: some Sequence<UInt8>) -> Bool {
        var count = 0
        for byte in text {
            count += 1
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "0")...UInt8(ascii: "9"):
                if count > 8 { return false }
            default: return false
            }
        }
        return count > 0
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
