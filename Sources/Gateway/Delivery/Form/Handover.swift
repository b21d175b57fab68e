// Files handed to an upstream by their paths, and the key that what is said of them is signed with.
//
// A file appears whole and by a rename, under `<id>-<name>`, and goes when the upstream has answered 2xx or
// after `path.retention`. Invariant: only names of that shape are ever removed from the directory.

import SpoolgateCrypto
import SpoolgateJournal
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateTextFormats
import SpoolgateUploadProtocol
import SpoolgateUpstream

/// One file in the handover directory.
struct Handover {
    private let directory: String
    private let name: String

    /// Where the upstream finds it.
    var path: String { directory.hasSuffix("/") ? directory + name : "\(directory)/\(name)" }

    /// Puts a file there, by a hard link where that can be, else by a copy; mode 0640; on disk, where the
    /// upload's promises survive a power cut.
    ///
    /// - Throws: `FormFailure` that names the directory.
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
        } catch let error as SystemError {
            throw FormFailure(
                reason: "cannot hand over \(path): \(error); "
                    + (error.isFull
                        ? error.roomRemedy
                        : "check that the directory exists and this user may write to it"),
                isFull: error.isFull
            )
        } catch let error as DropContentError {
            throw FormFailure(
                reason:
                    "cannot hand over \(path): cannot read the content: \(error.underlying)"
            )
        } catch {
            throw FormFailure(reason: "cannot hand over \(path): \(error)")
        }
    }

    /// Removes it, if it is still there under this name.
    func withdraw() {
        // What cannot be removed now goes after `path.retention`. `try?`: it is not the delivery's failure.
        guard let files = try? DropFiles(path: directory) else { return }
        files.remove(name)
    }
}

/// The key that notices are signed with.
struct SigningKey {
    private static let limits = 16...4096
    private let bytes: [UInt8]
    private let id: String?

    /// Reads the key: the file without one line end behind it, at least 16 bytes.
    ///
    /// It is read for each delivery, so that a new key needs no restart.
    init(_ settings: PathSettings) throws(FormFailure) {
        guard let file = settings.keyFile else {
            throw FormFailure(reason: "path.key-file is not set")
        }
        var bytes: [UInt8]
        do throws(SystemError) {
            bytes = try SecretFile.read(file, limit: Self.limits.upperBound)
        } catch {
            throw FormFailure(
                reason: error.call == "stat"
                    ? "\(file) is readable by others, writable by its group, or not a regular file; set its mode to "
                        + "0600 or 0640"
                    : "cannot read the key: \(error)"
            )
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

    /// Adds time, key and, over everything, the signature.
    func sign(_ notice: inout HandoverNotice, at time: WallTime) {
        notice.add("time", .integer(time.seconds))
        if let id { notice.add("key-id", .string(id)) }
        let code = HMAC256.code(notice.signedText, key: bytes)
        notice.add("signature", .string(Hexadecimal.text(code)))
    }
}

extension RouteSettings {
    /// Why the key of this route's form is none; nil where it is one, or none is needed.
    package var keyFault: String? {
        guard form == .path else { return nil }
        do throws(FormFailure) {
            _ = try SigningKey(path)
            return nil
        } catch {
            return error.reason
        }
    }

    /// Removes files that were handed over, whose upstream did not answer 2xx and whose time is over.
    ///
    /// - Parameters:
    ///   - now: the present moment.
    ///   - removed: called for each with its path.
    /// - Throws: `SystemError` where the directory cannot be read or changed.
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

    /// Whether a name is one that `Handover` gives, or that it gives a file before it is whole.
    private static func isHandover(_ name: String) -> Bool {
        let shown = name.hasPrefix(".") && name.hasSuffix(".part") ? name.dropFirst() : name[...]
        return shown.dropFirst(26).first == "-" && UploadID(String(shown.prefix(26))) != nil
    }
}

extension Deliveries {
    /// Removes what was handed over and is still there when its time is over, on every route.
    func removeOldHandovers(_ settings: Settings, _ now: WallTime) {
        for (name, route) in settings.routes {
            do throws(SystemError) {
                try route.removeExpiredHandovers(now: now) { log.handoverExpired($0, route: name) }
            } catch {
                log.queueTrouble(
                    "cannot remove expired files from path.directory of route '\(name)': \(error)"
                )
            }
        }
    }
}
