// The sources of a command's settings: a file, the environment, or the defaults.

import ArgumentParser
import Glibc
import SpoolgatePosix
import SpoolgateSettings

struct ListenOption: ParsableArguments {
    @Option(
        help: .value(
            "address",
            "The address to listen on, overrides listen: unix:/path, tcp:host:port or systemd."
        ),
        transform: reading("is not valid; use unix:/path, tcp:host:port or systemd.") {
            ListenAddress($0)
        }
    )
    var listen: ListenAddress?
}

/// The option of commands that read the settings but not the spool.
struct SettingsFileOption: ParsableArguments {
    static let systemFile = "/etc/spoolgate/spoolgate.yaml"

    @Option(
        name: .shortAndLong,
        help: .value(
            "file",
            "The settings file (default: \(systemFile) if it exists, otherwise the environment or "
                + "the built-in defaults)."
        ),
        completion: .file(extensions: ["yaml"])
    )
    var config: String?

    /// The absolute path of the settings file; nil without a file.
    var file: String? {
        config.map { WorkingDirectory.absolute($0) }
            ?? (access(Self.systemFile, F_OK) == 0 ? Self.systemFile : nil)
    }

    /// Returns the settings from `file` and the environment, or the defaults.
    func settings(from file: String?) throws(CommandFailure) -> Settings {
        do throws(SettingsFault) {
            return try Settings.load(file, environment: Listener.processEnvironment)
        } catch {
            if let file { try requireRight(.read, to: file) }
            throw CommandFailure(.configuration, error.description)
        }
    }
}

struct SettingsOptions: ParsableArguments {
    static let systemFile = SettingsFileOption.systemFile
    static let serviceUser = "spoolgate"

    @OptionGroup var settingsFile: SettingsFileOption

    @Option(
        help: .value("directory", "The spool directory, overrides spool.directory."),
        completion: .directory
    )
    var spool: String?

    var file: String? { settingsFile.file }

    /// Returns whether `file` is the system's settings file, even under another path, such as a link.
    static func isSystems(_ file: String?) -> Bool {
        guard let file, let identity = FileIdentity(of: file) else { return false }
        return identity == FileIdentity(of: systemFile)
    }

    func settings() throws(CommandFailure) -> Settings { try settings(from: file) }

    /// Returns the settings from `file` and the environment, or the defaults, with the changes of the command line.
    func settings(from file: String?) throws(CommandFailure) -> Settings {
        var settings = try settingsFile.settings(from: file)
        if let spool {
            settings.spoolDirectory = WorkingDirectory.absolute(spool)
            settings.noteOption("spool.directory")
        }
        return settings
    }
}

extension ListenOption {
    func apply(to settings: inout Settings) {
        guard let listen else { return }
        settings.listen = listen
        for key in ["listen", "socket-mode", "socket-group"] { settings.noteOption(key) }
    }
}

extension Settings {
    /// Returns how messages about the settings begin: the path of the file, `environment` or `built-in defaults`.
    func source(_ file: String?) -> String {
        file ?? (variables.isEmpty ? "built-in defaults" : "environment")
    }

    /// The environment variables that override settings, with the settings' keys, in one line; nil if none is set.
    var fromEnvironment: String? {
        guard !variables.isEmpty else { return nil }
        return variables.map { "\($0.name) (\($0.key))" }.joined(separator: ", ")
    }
}

/// Throws an error with the command to run unless the user of this process has `rights` to a file or directory of the
/// daemon.
///
/// Other errors are ignored.
func requireRight(_ rights: AccessRights, to path: String) throws(CommandFailure) {
    do throws(PathObstacle) {
        _ = try PathAccess.require(rights, to: path)
    } catch {
        guard case .denied(let facts, _, _) = error else { return }
        let user = SystemUser.current
        // The service's user is not advised to use root, because the daemon must not run as root.
        guard user.name != SettingsOptions.serviceUser else {
            let use = rights == .read ? PathUse.file : .ownDirectory
            let fault = PathFault(user: user, use: use, path: path)
            throw CommandFailure(.noPermission, fault.sentence(error))
        }
        throw CommandFailure(
            .noPermission,
            "\(path): user \(user.name) has no access to \(facts.path) "
                + "(\(facts.description)); run the command as root: sudo spoolgate ..."
        )
    }
}
