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

    @Test("each command that people type has a script")
    func present() {
        let names = Set(Self.files.map { $0.deletingPathExtension().lastPathComponent })
        #expect(
            names.isSuperset(of: [
                "list", "shape", "show", "hold", "release", "requeue", "purge", "check",
                "upload", "download",
            ])
        )
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
