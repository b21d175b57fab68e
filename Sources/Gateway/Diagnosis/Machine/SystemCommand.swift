// Other programs of the system that are asked how things are: nginx and systemctl.

import SpoolgatePosix

/// One question to a program.
enum SystemCommand {
    private static let places = [
        "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin", "/usr/local/bin",
    ]
    private static let timeout = Duration.seconds(20)
    private static let limit = 16 << 20

    /// What a program wrote to its standard output; or, in one line, why there is nothing.
    static func output(of command: [String]) -> Result<String, SystemCommandFault> {
        run(command).map(\.output)
    }

    /// The standard error of a program that succeeded; nil: it did not.
    static func errors(of command: [String]) -> String? {
        // `try?`: the caller has no use for the reason.
        try? run(command).get().errors
    }

    private static func run(
        _ command: [String]
    ) -> Result<(output: String, errors: String), SystemCommandFault> {
        let name = command.joined(separator: " ")
        guard let program = command.first.flatMap(path) else {
            return .failure(.init(reason: "\(command.first ?? "") is not installed"))
        }
        do throws(SystemError) {
            let process = try ChildProcess(
                [program] + command.dropFirst(),
                environment: [("PATH", places.joined(separator: ":")), ("LC_ALL", "C")],
                limit: limit
            )
            let end = process.wait(until: .after(timeout))
            guard end == .exited(0) else {
                let lines = String(decoding: process.errors, as: UTF8.self).split(separator: "\n")
                // nginx's own last line says only that there was another one.
                let words =
                    lines.first { $0.contains("[emerg]") } ?? lines.last
                    ?? "failed without a message"
                return .failure(.init(reason: "\(name): \(words)"))
            }
            return .success(
                (
                    String(decoding: process.output, as: UTF8.self),
                    String(decoding: process.errors, as: UTF8.self)
                )
            )
        } catch {
            return .failure(.init(reason: "\(error)"))
        }
    }

    private static func path(_ name: String) -> String? {
        if name.hasPrefix("/") { return name }
        return places.map { "\($0)/\(name)" }.first { path in
            // `try?`: what cannot be run there is looked for elsewhere.
            (try? PathAccess.require(.search, to: path)) != nil
        }
    }
}

/// Why a program said nothing.
struct SystemCommandFault: Error {
    var reason: String
}
