// The engines that tests drive, and what each of them needs to be installed.

import Foundation
import Testing

/// An engine with a browser of Debian's around it.
enum Engine: String, CaseIterable, Sendable, CustomTestStringConvertible {
    case chromium = "Chromium"
    case firefox = "Firefox"
    case webkit = "WebKit"

    var testDescription: String { rawValue }

    /// Whether its programs are installed.
    var isInstalled: Bool { programs.allSatisfy { $0 != nil } }

    /// What a skipped test says.
    var missing: Comment {
        switch self {
        case .chromium: "chromedriver is not installed: apt-get install chromium-driver"
        case .firefox: "Firefox is not installed: apt-get install firefox-esr"
        case .webkit: "WebKit's driver is not installed: apt-get install webkit2gtk-driver xvfb"
        }
    }

    private var programs: [String?] {
        switch self {
        case .chromium: [Command.find("chromedriver")]
        case .firefox: [Command.find("firefox-esr")]
        case .webkit: [Command.find("WebKitWebDriver"), Command.find("Xvfb"), Self.miniBrowser]
        }
    }

    /// WebKit's own small browser, which is outside PATH.
    static let miniBrowser: String? = {
        let libraries = "/usr/lib/" + (hasARM ? "aarch64-linux-gnu" : "x86_64-linux-gnu")
        let versions = (try? FileManager.default.contentsOfDirectory(atPath: libraries)) ?? []
        return versions.filter { $0.hasPrefix("webkit") }.sorted().reversed()
            .map { "\(libraries)/\($0)/MiniBrowser" }
            .first { FileManager.default.isExecutableFile(atPath: $0) }
    }()

    private static var hasARM: Bool {
        #if arch(arm64)
        true
        #else
        false
        #endif
    }
}
