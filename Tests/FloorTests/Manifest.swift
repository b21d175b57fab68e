// The declarations of Package.swift.

import Foundation
import Testing

/// Read from the text of Package.swift, since `swift package dump-package` would wait for the lock of the running
/// `swift test`.
///
/// A declaration that is not understood gives a target without sources or an unknown dependency, and either fails a
/// test.
struct Manifest {
    struct Target: CustomTestStringConvertible {
        var name: String
        /// The word in the manifest, such as `testTarget`.
        var kind: String
        /// Relative to the package, with a trailing slash.
        var folder: String
        /// The declared modules; a program that it runs, by the target's name.
        var dependencies: [String]

        var testDescription: String { name }
    }

    /// In the order of the manifest: lower floors first.
    let targets: [Target]
    /// The modules of other packages.
    let products: Set<String>

    static let package = Manifest(
        (try? String(contentsOf: SourceFile.root.appending(path: "Package.swift"), encoding: .utf8))
            ?? ""
    )

    init(_ text: String) {
        let code = text.split(separator: "\n")
            .filter { !$0.trimmingCharacters(in: .whitespaces).hasPrefix("//") }
            .joined(separator: "\n")
        let constants = Dictionary(
            code.matches(of: /let (\w+) = Target\.Dependency\.product\(\s*name: "(\w+)"/)
                .map { (String($0.1), String($0.2)) },
            uniquingKeysWith: { first, _ in first }
        )
        let heads = code.matches(
            of: /\.(target|executableTarget|testTarget|systemLibrary)\(\s*name: "([^"]+)"/
        )
        let ends = heads.dropFirst().map(\.range.lowerBound) + [code.endIndex]
        products = Set(constants.values)
        targets = zip(heads, ends).map { head, end in
            let rest = code[head.range.upperBound..<end]
            let (kind, name) = (String(head.1), String(head.2))
            let top = kind == "testTarget" ? "Tests" : "Sources"
            let path = rest.firstMatch(of: /path: "([^"]+)"/).map { String($0.1) }
            let list = rest.firstMatch(of: /dependencies: \[([^\]]*)\]/).map(\.1) ?? ""
            let words = list.split(separator: ",")
                .map { $0.trimmingCharacters(in: .whitespacesAndNewlines) }
                .filter { !$0.isEmpty }
            return Target(
                name: name,
                kind: kind,
                folder: "\(path ?? "\(top)/\(name)")/",
                dependencies: words.map {
                    constants[$0] ?? $0.trimmingCharacters(in: ["\""])
                }
            )
        }
    }

    /// `path` is relative to the package.
    func target(of path: String) -> Target? { targets.first { path.hasPrefix($0.folder) } }
}
