// The fenced blocks of docs/RECIPES.md and docs/FRONTS.md; the line before each names it:
// `<!-- block: RECIPE NAME -->`.

import Foundation
import SpoolgateTestSupport
import Testing

struct RecipeBlock: Hashable {
    var recipe: String
    var name: String
    var text: String

    static let all = ["RECIPES.md", "FRONTS.md"].flatMap { page in
        let file = Sandbox.root.appending(path: "docs/\(page)")
        let text = (try? String(contentsOf: file, encoding: .utf8)) ?? ""
        let pattern = /<!-- block: (\S+) (\S+) -->\n```\w+\n((?:.*\n)*?)```\n/
        return text.matches(of: pattern).map { match in
            RecipeBlock(
                recipe: String(match.1),
                name: String(match.2),
                text: String(match.3)
            )
        }
    }

    /// The text of a block, with other ports and paths.
    static func text(
        _ recipe: String,
        _ name: String,
        _ others: KeyValuePairs<String, String> = [:]
    ) throws -> String {
        var text = try #require(all.first { $0.recipe == recipe && $0.name == name }).text
        for (shown, other) in others {
            try #require(text.contains(shown), "\(recipe) \(name) does not have \(shown)")
            text = text.replacing(shown, with: other)
        }
        return text
    }

    /// The lines of a route, without its upstream.
    static func route(
        _ recipe: String,
        _ route: String = "default",
        _ others: KeyValuePairs<String, String> = [:]
    ) throws -> [String] {
        let lines = try text(recipe, "yaml", others).split(separator: "\n")
        let start = try #require(lines.firstIndex { $0 == "  \(route):" })
        return lines[(start + 1)...].prefix { $0.hasPrefix("    ") }.map { $0.dropFirst(4) }
            .filter { !$0.hasPrefix("upstream: http") && !$0.hasPrefix("upstream: s3:") }
            .map(String.init)
    }
}
