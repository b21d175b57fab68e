// Runs programs that report state: nginx and systemctl.

import SpoolgatePosix

enum SystemCommand {
    private static let places = [
        "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin", "/usr/local/bin",
    ]
    private static let timeout = Duration.seconds(20)
    private static let limit = 16 << 20

    /// Returns a program's standard output, or a one-line reason if the program failed.
    static func output(of command: [String]) -> Result<String, SystemCommandFault> {
        guard let program = command.first.flatMap(path) else {
            return .failure(.init(reason: "\(command.first ?? "") is not installed"))
        }
        do throws(SystemError) {
            let process = try ChildProcess(
                [program] + command.dropFirst(),
                environment: [("PATH", places.joined(separator: ":")), ("LC_ALL", "C")],
                limit: limit
            )
            guard process.wait(until: .after(timeout)) == .exited(0) else {
                let lines = String(decoding: process.errors, as: UTF8.self).split(separator: "\n")
                // nginx's last line only says that the test failed.
                let words =
                    lines.first { $0.contains("[emerg]") } ?? lines.last
                    ?? "failed without a message"
                return .failure(.init(reason: "\(command.joined(separator: " ")): \(words)"))
            }
            return .success(String(decoding: process.output, as: UTF8.self))
        } catch {
            return .failure(.init(reason: "\(error)"))
        }
    }

    private static func path(_ name: String) -> String? {
        if name.hasPrefix("/") { return name }
        return places.map { "\($0)/\(name)" }.first { path in
            // `try?`: the program may be in the next directory.
            (try? PathAccess.require(.search, to: path)) != nil
        }
    }
}

struct SystemCommandFault: Error {
    var reason: String
}
