// Where a command's settings come from: the file named, the system's file, or the defaults.

import ArgumentParser
import Glibc
import SpoolgatePosix
import SpoolgateSettings

struct ListenOption: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "Where nginx connects, instead of the settings' listen: unix:/path, tcp:host:port or "
                + "systemd.",
            valueName: "address"
        ),
        transform: reading("is not unix:/path, tcp:host:port or systemd.") { ListenAddress($0) }
    )
    var listen: ListenAddress?
}

struct SettingsOptions: ParsableArguments {
    static let systemFile = "/etc/spoolgate/spoolgate.yaml"
    /// Whom the shipped service runs as.
    static let serviceUser = "spoolgate"

    @Option(
        name: .shortAndLong,
        help: ArgumentHelp(
            "The settings file (default: \(systemFile) if it is there, else the built-in defaults).",
            valueName: "file"
        ),
        completion: .file(extensions: ["yaml"])
    )
    var config: String?

    @Option(
        help: ArgumentHelp(
            "The spool directory, instead of the settings' spool.directory.",
            valueName: "directory"
        ),
        completion: .directory
    )
    var spool: String?

    /// The file the settings come from, an absolute path; nil: the defaults.
    var file: String? {
        config.map { WorkingDirectory.absolute($0) }
            ?? (access(Self.systemFile, F_OK) == 0 ? Self.systemFile : nil)
    }

    /// Whether `file` is the system's, whatever it is called by.
    static func isSystems(_ file: String?) -> Bool {
        guard let file, let identity = FileIdentity(of: file) else { return false }
        return identity == FileIdentity(of: systemFile)
    }

    /// What a sentence about the settings from `file` begins with.
    func source(of file: String?) -> String { file ?? "built-in defaults" }

    /// The settings, with what the command line says in place of what the file says.
    func settings() throws(CommandFailure) -> Settings { try settings(from: file) }

    /// The settings that `file` has, or the defaults, with what the command line says in place of them.
    func settings(from file: String?) throws(CommandFailure) -> Settings {
        var settings = Settings()
        if let file {
            do throws(SettingsFault) {
                settings = try Settings.load(file)
            } catch {
                try requireRight(.read, to: file)
                throw CommandFailure(code: .configuration, sentence: error.description)
            }
        }
        if let spool {
            settings.spoolDirectory = WorkingDirectory.absolute(spool)
        }
        return settings
    }
}

/// Looks whether whoever runs the command may use what the daemon keeps.
///
/// - Parameters:
///   - rights: what the command needs.
///   - path: the path.
/// - Throws: what to type, where the rights are what is missing.
func requireRight(_ rights: AccessRights, to path: String) throws(CommandFailure) {
    do throws(PathObstacle) {
        _ = try PathAccess.require(rights, to: path)
    } catch {
        guard case .denied(let facts, _, _) = error else { return }
        let user = SystemUser.current
        // The daemon itself: it is not to run as root.
        guard user.name != SettingsOptions.serviceUser else {
            let fault = PathFault(
                user: user,
                use: rights == .read ? .file : .ownDirectory,
                path: path
            )
            throw CommandFailure(code: .noPermission, sentence: fault.sentence(error))
        }
        throw CommandFailure(
            code: .noPermission,
            sentence: "\(path): user \(user.name) may not look into \(facts.path) "
                + "(\(facts.description)); as root it can: sudo spoolgate ..."
        )
    }
}
