// Where a command's settings come from: the file named, the system's file, or the defaults.

import ArgumentParser
import Gateway
import Glibc
import Upstream

struct SettingsOptions: ParsableArguments {
    static let systemFile = "/etc/spoolgate/spoolgate.yaml"

    @Option(
        name: .shortAndLong,
        help: ArgumentHelp(
            "The settings file (default: \(systemFile) if it is there, else the built-in defaults).",
            valueName: "file"
        )
    )
    var config: String?

    @Option(
        help: ArgumentHelp(
            "The spool directory, instead of the settings' spool.directory.",
            valueName: "directory"
        )
    )
    var spool: String?

    /// The file the settings come from; nil: the defaults.
    var file: String? {
        config ?? (access(Self.systemFile, F_OK) == 0 ? Self.systemFile : nil)
    }

    /// The settings, with what the command line says in place of what the file says.
    func settings() throws(CommandFailure) -> Settings {
        var settings = Settings()
        if let file {
            do throws(SettingsFault) {
                settings = try Settings.load(file)
            } catch {
                throw CommandFailure(code: .configuration, sentence: error.description)
            }
        }
        if let spool {
            guard spool.hasPrefix("/") else {
                throw CommandFailure(
                    code: .configuration,
                    sentence: "--spool \(spool): the spool directory must be an absolute path"
                )
            }
            settings.spoolDirectory = spool
        }
        return settings
    }
}
