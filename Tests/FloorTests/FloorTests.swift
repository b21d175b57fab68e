// The house rules that a compiler does not check: which floor imports what, documented declarations. Reads the sources; builds nothing.

import Foundation
import Testing

/// One Swift source file of the package.
struct SourceFile: CustomTestStringConvertible {
    var target: String
    var path: String
    var lines: [String]

    var testDescription: String { path }

    /// Every module the file imports, whatever the access level or attribute.
    var imports: [String] {
        lines.compactMap { line in
            let words = line.split(separator: " ").filter {
                !["package", "internal", "private", "fileprivate", "public"].contains($0)
                    && !$0.hasPrefix("@")
            }
            guard words.count >= 2, words[0] == "import" else { return nil }
            return String(words.last?.split(separator: ".").first ?? "")
        }
    }

    static let root = URL(filePath: #filePath).deletingLastPathComponent()
        .deletingLastPathComponent().deletingLastPathComponent()

    /// Every file below a top-level folder; `target` is the folder below that.
    static func all(in top: String) -> [SourceFile] {
        let folder = root.appending(path: top)
        let walk = FileManager.default.enumerator(at: folder, includingPropertiesForKeys: nil)
        return (walk?.allObjects as? [URL] ?? []).filter { $0.pathExtension == "swift" }
            .map { url in
                let relative = url.path().dropFirst(folder.path().count)
                    .drop { $0 == "/" }
                let text = (try? String(contentsOf: url, encoding: .utf8)) ?? ""
                return SourceFile(
                    target: relative.split(separator: "/").first.map(String.init) ?? "",
                    path: "\(top)/\(relative)",
                    lines: text.components(separatedBy: "\n")
                )
            }
    }

    static let sources = all(in: "Sources")
}

/// What each floor may import (beside the standard library's own modules).
private let allowed: [String: Set<String>] = {
    let base: Set<String> = [
        "UploadProtocol", "TextFormats", "Posix", "HTTPTypes", "Synchronization",
    ]
    let second = base.union(["Exchange", "Spool", "Upstream"])
    let upper = second.union(["Settings", "Journal", "Delivery", "Crypto"])
    return [
        "UploadProtocol": ["TextFormats", "HTTPTypes", "RawStructuredFieldValues"],
        "TextFormats": [],
        "Posix": ["Glibc", "Synchronization", "CLinux"],
        "Crypto": ["COpenSSL", "Synchronization"],
        "Curl": base.union(["CCurl", "Glibc"]),
        "ResumableUpload": base.union(["Crypto", "Curl", "Glibc"]),
        "Exchange": ["UploadProtocol", "TextFormats", "Posix", "HTTPTypes"],
        "Spool": base.union(["Crypto", "Glibc"]),
        "Upstream": base.union(["Crypto", "Curl", "Glibc"]),
        "FastCGIFront": base.union(["Exchange", "CFastCGI", "Glibc"]),
        "Settings": base.union(["Spool", "Upstream", "CYAML", "Logging"]),
        "Journal": second.union(["Settings", "Crypto", "Logging"]),
        "Diagnosis": base.union(["Curl", "Upstream", "Settings", "Glibc"]),
        "Delivery": second.union(["Settings", "Journal", "Crypto"]),
        "Gateway": upper,
        "Admin": second.union(["Journal", "Delivery", "Gateway"]),
        "spoolgate": upper.union([
            "FastCGIFront", "Gateway", "Curl", "Diagnosis", "Admin", "ArgumentParser", "Logging",
            "Glibc",
        ]),
        "spoolgate-upload": base.union(["Crypto", "ResumableUpload", "ArgumentParser", "Glibc"]),
    ]
}()

@Suite("The floors")
struct FloorTests {
    @Test("the sources are found")
    func sourcesAreFound() {
        #expect(Set(SourceFile.sources.map(\.target)).isSuperset(of: allowed.keys))
    }

    @Test("a file imports only what lies below its floor", arguments: SourceFile.sources)
    func importsPointDown(file: SourceFile) throws {
        let permitted = try #require(allowed[file.target], "\(file.target) stands on no floor")
        for module in file.imports {
            #expect(permitted.contains(module), "\(file.path) imports \(module)")
        }
    }

    @Test(
        "a C library has exactly one importing target",
        arguments: ["CFastCGI", "COpenSSL", "CCurl", "CYAML", "CLinux"]
    )
    func oneImporter(library: String) {
        let importers = Set(
            SourceFile.sources.filter { $0.imports.contains(library) }.map(\.target)
        )
        #expect(importers.count == 1, "\(library) is imported by \(importers.sorted())")
    }

    /// What has to say something of itself; a property often says all by its name.
    private static let explained: Set<String> = [
        "struct", "class", "enum", "protocol", "func", "init", "init?", "subscript", "typealias",
    ]

    @Test(
        "a type, function or initialiser for other targets is documented",
        arguments: SourceFile.sources
    )
    func documented(file: SourceFile) {
        for (number, line) in file.lines.enumerated() {
            let words = line.split { " (<:".contains($0) }.map(String.init)
            guard let access = words.firstIndex(where: { ["package", "public"].contains($0) }),
                access + 1 < words.count,
                words[..<access].allSatisfy({ $0.hasPrefix("@") }),
                words[access...].contains(where: Self.explained.contains)
            else { continue }
            var above = number - 1
            while above >= 0, file.lines[above].trimmingCharacters(in: .whitespaces).hasPrefix("@")
            {
                above -= 1
            }
            let comment = above >= 0 ? file.lines[above].trimmingCharacters(in: .whitespaces) : ""
            #expect(comment.hasPrefix("///"), "\(file.path):\(number + 1) says nothing of itself")
        }
    }

    /// The one target that other packages may import.
    private static let publicTarget = "ResumableUpload"

    @Test("nothing is public, forced or promised for later", arguments: SourceFile.sources)
    func forbiddenWords(file: SourceFile) {
        for (number, line) in file.lines.enumerated() {
            let code = line.prefix(upTo: line.range(of: "//")?.lowerBound ?? line.endIndex)
            if file.target != Self.publicTarget {
                #expect(!code.contains("public "), "\(file.path):\(number + 1) has 'public'")
            }
            for word in ["try!", "as!", "fatalError("] {
                #expect(!code.contains(word), "\(file.path):\(number + 1) has '\(word)'")
            }
            #expect(!line.contains("TODO"), "\(file.path):\(number + 1) promises something")
        }
    }

    @Test("a test wait has a condition, never a nap", arguments: SourceFile.all(in: "Tests"))
    func noNaps(file: SourceFile) {
        guard !file.path.contains("FloorTests"), !file.path.contains("TestSupport") else { return }
        for (number, line) in file.lines.enumerated() {
            #expect(
                !line.contains("Task.sleep") && !line.contains("Thread.sleep"),
                "\(file.path):\(number + 1) naps"
            )
        }
    }
}
