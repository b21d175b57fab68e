// `spoolgate status`: the state that the running daemon reports on its admin socket.

import ArgumentParser
import SpoolgateFastCGIFront
import SpoolgatePosix
import SpoolgateSettings
import SpoolgateTextFormats

struct StatusCommand: SpoolgateCommand {
    static let configuration = CommandConfiguration(
        commandName: "status",
        abstract: "Show the state of the running daemon.",
        discussion: """
            Asks the daemon on its admin socket, and does not read the spool. With --check, prints one \
            line and exits like a Nagios plugin: 0 if all is well, 1 if an operator should look, 2 if \
            the daemon is not serving, is not ready, or is refusing uploads because space is low.
            """
    )

    @OptionGroup var options: SettingsFileOption

    @Flag(help: "Print one line, and exit like a Nagios plugin: 0, 1 or 2.")
    var check = false

    @Flag(help: "Print one JSON object; ignore unknown members.")
    var json = false

    @Option(
        help: .value(
            "path",
            "The daemon's socket, overrides admin-listen; the settings are not read."
        )
    )
    var socket: String?

    private static let timeout = Duration.seconds(10)

    func validate() throws {
        if check, json { throw ValidationError("--check and --json cannot be combined.") }
    }

    func perform() throws(CommandFailure) {
        let response: String
        var fault: CommandFailure?
        do throws(CommandFailure) { response = try request(&fault) } catch {
            guard check else { throw error }
            return try end("CRITICAL: \(error.sentence)")
        }
        if let fault, !check { printError("warning: \(fault.sentence)") }
        if json { return print(response, terminator: "") }
        let lines = response.split(separator: "\n", omittingEmptySubsequences: false)
        guard let first = lines.first.map(String.init) else { return }
        if check {
            guard let fault, first.hasPrefix("OK: ") else { return try end(first) }
            return try end("WARNING: \(fault.sentence); \(first.dropFirst(4))")
        }
        let columns = Terminal.output.size?.columns ?? .max
        for line in lines.dropLast() { print(String(line).cut(toColumns: columns)) }
    }

    /// Prints the status line; unless its level is OK, throws the exit code of a Nagios plugin.
    private func end(_ line: String) throws(CommandFailure) {
        print(line)
        guard !line.hasPrefix("OK:") else { return }
        let code: CommandFailure.Code = line.hasPrefix("WARNING:") ? .warnings : .critical
        throw CommandFailure(code, line, isReported: true)
    }

    /// Returns the daemon's status; the error says why the daemon did not respond, or what is wrong in the settings.
    ///
    /// A running daemon keeps its old settings. If the settings have become unusable and the daemon responds on the
    /// default socket, `fault` is set to their error.
    private func request(_ fault: inout CommandFailure?) throws(CommandFailure) -> String {
        if let socket { return try request(socket) }
        let settings: Settings
        do throws(CommandFailure) { settings = try options.settings(from: options.file) } catch {
            guard let response = try? request(Settings().adminSocket) else { throw error }
            fault = error
            return response
        }
        return try request(settings.adminSocket)
    }

    private func request(_ path: String) throws(CommandFailure) -> String {
        let response: FastCGIFetch.Response
        do throws(SystemError) {
            response = try FastCGIFetch(path: path, timeout: Self.timeout)
                .get(json ? "/status" : "/status.txt")
        } catch  where error.isDenial {
            let sentence = "\(error); run the command as root: sudo spoolgate status"
            throw CommandFailure(.noPermission, sentence)
        } catch  where error.isRefusal {
            let sentence = "no daemon listens on \(path); see systemctl status spoolgate"
            throw CommandFailure(.unavailable, sentence)
        } catch {
            throw CommandFailure(.unavailable, "the daemon did not respond: \(error)")
        }
        guard response.status == 200 else {
            let sentence = "\(path): the daemon responded with \(response.status)"
            throw CommandFailure(.unavailable, sentence)
        }
        return String(decoding: response.content, as: UTF8.self)
    }
}
