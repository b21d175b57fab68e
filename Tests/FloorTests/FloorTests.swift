// Rules that the compiler does not check, read from the manifest and the sources.

import Foundation
import Testing

struct SourceFile: CustomTestStringConvertible {
    /// Empty if the file is in no target.
    var target: String
    var path: String
    var lines: [String]

    var testDescription: String { path }

    /// The imported modules, with any access level or attribute.
    var imports: [String] {
        lines.compactMap { line in
            // An import in a literal, for another language, is indented.
            guard line.first?.isWhitespace == false else { return nil }
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

    static func all(in top: String) -> [SourceFile] {
        let folder = root.appending(path: top)
        let walk = FileManager.default.enumerator(at: folder, includingPropertiesForKeys: nil)
        return (walk?.allObjects as? [URL] ?? []).filter { $0.pathExtension == "swift" }
            .map { url in
                let relative = url.path().dropFirst(folder.path().count)
                    .drop { $0 == "/" }
                let path = "\(top)/\(relative)"
                let text = (try? String(contentsOf: url, encoding: .utf8)) ?? ""
                return SourceFile(
                    target: Manifest.package.target(of: path)?.name ?? "",
                    path: path,
                    lines: text.components(separatedBy: "\n")
                )
            }
    }

    static let sources = all(in: "Sources")
}

/// The toolchain's modules, and the targets below the tests that may import them.
private let toolchain: [String: Set<String>] = [
    "Glibc": [
        "SpoolgatePosix", "SpoolgateCurl", "ResumableUpload", "SpoolgateSpool",
        "SpoolgateUpstream", "SpoolgateFastCGIFront", "SpoolgateDiagnosis", "spoolgate",
        "spoolgate-upload",
    ],
    // Not floor 0, which has no shared state.
    "Synchronization": Set(Manifest.package.targets.map(\.name))
        .subtracting(["SpoolgateUploadProtocol", "SpoolgateTextFormats"]),
]

@Suite("The floors")
struct FloorTests {
    private static let files = SourceFile.sources + SourceFile.all(in: "Tests")

    @Test("every file belongs to a target of the manifest, every target has a folder")
    func manifestIsRead() {
        let targets = Manifest.package.targets
        #expect(!targets.isEmpty && !Manifest.package.products.isEmpty)
        // A separate package, and a program for a Mac.
        let others = ["Tests/ClientPackage/", "Tests/Apple/"]
        for file in Self.files where !others.contains(where: file.path.hasPrefix) {
            #expect(Manifest.package.target(of: file.path) != nil, "\(file.path) has no target")
        }
        for target in targets {
            let folder = SourceFile.root.appending(path: target.folder).path()
            #expect(FileManager.default.fileExists(atPath: folder), "\(target.name) has no folder")
        }
        for name in toolchain.values.joined() + [Self.publicTarget] {
            #expect(targets.contains { $0.name == name }, "target \(name) is missing")
        }
    }

    @Test("a target depends only on targets below it in the manifest")
    func dependenciesPointDown() {
        var below = Manifest.package.products
        for target in Manifest.package.targets {
            for name in target.dependencies {
                #expect(below.contains(name), "\(target.name) depends on \(name)")
            }
            below.insert(target.name)
        }
    }

    // SwiftPM's --explicit-target-dependency-import-check is no substitute: it accepts the import of a module that only
    // a dependency declares, and misses a declared dependency that is not imported.
    @Test(
        "a target declares the modules it imports and no others",
        arguments: Manifest.package.targets
    )
    func importsAreDeclared(target: Manifest.Target) {
        let files = Self.files.filter { $0.path.hasPrefix(target.folder) }
        let isTest = target.folder.hasPrefix("Tests/")
        for file in files {
            for module in file.imports where !target.dependencies.contains(module) {
                let isTaken =
                    isTest
                    ? ["Foundation", "Glibc", "Synchronization", "Testing"].contains(module)
                    : toolchain[module]?.contains(target.name) == true
                #expect(isTaken, "\(file.path) imports \(module)")
            }
        }
        let imported = Set(files.flatMap(\.imports))
        // A test declares a program so that it is built.
        let programs = Manifest.package.targets.filter { $0.kind == "executableTarget" }
        for name in target.dependencies where !(isTest && programs.contains { $0.name == name }) {
            #expect(imported.contains(name), "\(target.name) declares \(name) but never imports it")
        }
    }

    @Test(
        "a C library, and the client library, has exactly one importing target",
        arguments: ["FastCGI", "OpenSSL", "Curl", "YAML", "Linux"]
            .map { "CSpoolgate\($0)" } + [publicTarget]
    )
    func oneImporter(library: String) {
        let importers = Set(
            SourceFile.sources.filter { $0.imports.contains(library) }.map(\.target)
        )
        #expect(importers.count == 1, "\(library) is imported by \(importers.sorted())")
    }

    /// These declarations need a comment; a property's name is often enough.
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
            #expect(comment.hasPrefix("///"), "\(file.path):\(number + 1) has no comment")
        }
    }

    /// The only target that other packages may import.
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

    @Test("a file that a comment names exists", arguments: files)
    func namedFiles(file: SourceFile) {
        let names = Set(Self.files.map { URL(filePath: $0.path).lastPathComponent })
            .union(["Package.swift"])
        for (number, line) in file.lines.enumerated() {
            guard let comment = line.firstRange(of: "//") else { continue }
            for match in line[comment.upperBound...].matches(of: /\b[A-Z][\w+.]*\.swift\b/) {
                #expect(
                    names.contains(String(match.0)),
                    "\(file.path):\(number + 1) names \(match.0), which does not exist"
                )
            }
        }
    }

    @Test("a test waits for a condition and never sleeps", arguments: SourceFile.all(in: "Tests"))
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
