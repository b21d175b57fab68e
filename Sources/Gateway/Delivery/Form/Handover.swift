// Files handed to an upstream by their paths, and the key that signs their description.
//
// A rename makes the complete file appear as `<id>-<name>`. The file is removed after a 2xx response of the upstream or
// after `path.retention`. Invariant: only files with such names are removed from the directory.

import SpoolgateCrypto
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import SpoolgateUpstream

struct Handover {
    private let directory: String
    private let name: String

    var path: String { directory.hasSuffix("/") ? directory + name : "\(directory)/\(name)" }

    /// Places the upload's file in the directory, with mode 0640: as a hard link if possible, otherwise as a copy.
    ///
    /// On return, the file is durable if the upload's promise covers power failures.
    init(
        _ content: UpstreamContent,
        _ description: FileDescription,
        _ settings: PathSettings,
        _ onProgress: () -> Void
    ) throws(FormFailure) {
        guard let directory = settings.directory else {
            throw FormFailure(reason: "path.directory is not set")
        }
        self.directory = directory
        name = "\(description.creation.id)-\(description.name.harmless)"
        do {
            let files = try DropFiles(
                path: directory,
                survivesPowerCut: description.creation.promise == .powerCut
            )
            _ = try files.store(content, as: name, onProgress)
            try files.sync()
        } catch {
            throw FormFailure(
                reason: "cannot hand over \(path): \(DropFiles.reason(of: error))",
                isFull: (error as? SystemError)?.isFull ?? false
            )
        }
    }

    func withdraw() {
        // `try?`: the delivery has not failed, and the file is removed after `path.retention`.
        guard let files = try? DropFiles(path: directory) else { return }
        files.remove(name)
    }
}

/// Signs the notices for handed-over files.
struct SigningKey {
    private static let limits = 16...4096
    private let bytes: [UInt8]
    private let id: String?

    /// Reads the key from its file without one trailing line break; throws if the key is shorter than 16 bytes.
    ///
    /// The file is read for each delivery, so that a new key takes effect without a restart.
    init(_ settings: PathSettings) throws(FormFailure) {
        guard let file = settings.keyFile else {
            throw FormFailure(reason: "path.key-file is not set")
        }
        var bytes: [UInt8]
        do throws(SystemError) {
            bytes = try SecretFile.read(file, limit: Self.limits.upperBound)
        } catch {
            throw FormFailure(reason: error.reason(ofSecret: "the key"))
        }
        if bytes.last == UInt8(ascii: "\n") { bytes.removeLast() }
        if bytes.last == UInt8(ascii: "\r") { bytes.removeLast() }
        guard bytes.count >= Self.limits.lowerBound else {
            throw FormFailure(
                reason:
                    "\(file) has \(bytes.count) bytes, but a key needs at least \(Self.limits.lowerBound)"
            )
        }
        self.bytes = bytes
        id = settings.keyID
    }

    /// Adds the time, the key's name and, last, the signature over all members.
    func sign(_ notice: inout HandoverNotice, at time: WallTime) {
        notice.add("time", String(time.seconds))
        if let id { notice.add("key-id", id) }
        let code = HMAC256.code(notice.signedText, key: bytes)
        notice.add("signature", Hexadecimal.text(code))
    }
}

extension RouteSettings {
    /// The error in the file of the route's signing key; nil if the key is valid or the form needs no key.
    package var keyFault: String? {
        guard form == .path else { return nil }
        return Result { () throws(FormFailure) in try SigningKey(path) }.failure?.reason
    }

    /// Removes handed-over files that have expired because the upstream did not respond with 2xx.
    ///
    /// `removed` is called with the path of each removed file.
    ///
    /// - Throws: `SystemError` if the directory cannot be read or changed.
    func removeExpiredHandovers(
        now: WallTime,
        _ removed: (_ path: String) -> Void
    ) throws(SystemError) {
        guard form == .path, let path = path.directory else { return }
        let limit = now.seconds - self.path.retention.components.seconds
        let directory = try Directory(path: path)
        for name in try directory.names() where Self.isHandover(name) {
            guard let status = try directory.status(of: name), status.isRegular,
                status.changed.seconds <= limit
            else { continue }
            try Disk().unlink(name, in: directory)
            removed(directory.path(of: name))
        }
    }

    /// Whether `Handover` gives a file, complete or incomplete, this name.
    private static func isHandover(_ name: String) -> Bool {
        let shown = name.hasPrefix(".") && name.hasSuffix(".part") ? name.dropFirst() : name[...]
        return shown.dropFirst(26).first == "-" && UploadID(String(shown.prefix(26))) != nil
    }
}

extension Deliveries {
    func removeOldHandovers(_ settings: Settings, _ now: WallTime) {
        for (name, route) in settings.routes {
            do throws(SystemError) {
                try route.removeExpiredHandovers(now: now) { log.handoverExpired($0, route: name) }
            } catch {
                log.queueFailed(
                    "cannot remove expired files from path.directory of route '\(name)': \(error)"
                )
            }
        }
    }
}
