// Runs every command script; the output must match exactly.

import Foundation
import Testing

@Suite("command scripts")
struct ScriptTests {
    static var files: [URL] {
        guard let folder = Bundle.module.url(forResource: "Scripts", withExtension: nil),
            let files = try? FileManager.default.contentsOfDirectory(
                at: folder,
                includingPropertiesForKeys: nil
            )
        else { return [] }
        return files.filter { $0.pathExtension == "txt" }
            .sorted { $0.lastPathComponent < $1.lastPathComponent }
    }

    /// Commands without a script: their output has times and addresses, and their own suites test it.
    private static let withoutScript: Set = ["serve", "probe", "status"]

    @Test("each command has a script and an entry of its page")
    func present() throws {
        let program = try Self.text("Sources/Gateway/Program/Spoolgate.swift")
        let list = try #require(program.firstMatch(of: /subcommands: \[([^\]]*)\]/)).1
        let commands = Set(
            list.matches(of: /([A-Za-z]+?)(?:Command)?\.self/).map { $0.1.lowercased() }
        )
        let scripts = Set(Self.files.map { $0.deletingPathExtension().lastPathComponent })
        let needed = commands.subtracting(Self.withoutScript).union(["shape", "upload", "download"])
        #expect(needed.subtracting(scripts) == [], "these commands have no script")
        #expect(commands.isSuperset(of: Self.withoutScript))
        let entries = try Self.text("deploy/man/spoolgate.8").matches(of: /\n\.It Cm ([a-z-]+)\n/)
        #expect(Set(entries.map { String($0.1) }) == commands)
    }

    private static func text(_ path: String) throws -> String {
        let root = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../..")
        return try String(contentsOf: root.appending(path: path), encoding: .utf8)
    }

    @Test("each script produces the recorded output", arguments: files)
    func plays(file: URL) throws {
        let script = try CommandScript(String(contentsOf: file, encoding: .utf8))
        let stage = try ScriptStage()
        for step in script.steps {
            switch step {
            case .upload(let id, let words): try stage.make(id, words)
            case .busy(let id): try stage.use(id)
            case .free(let id): stage.free(id)
            case .command(let typed):
                let place = Comment("\(file.lastPathComponent): \(typed.text)")
                let said = try stage.run(typed)
                #expect(said.output == typed.output, place)
                var errors = said.errors
                if typed.errors.last == "…" {
                    errors = errors.prefix(typed.errors.count - 1) + ["…"]
                }
                #expect(errors == typed.errors, place)
                #expect(said.status == typed.status, place)
            }
        }
    }
}
