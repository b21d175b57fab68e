// The browser engines under test, and their programs.

import Foundation
import Testing

/// An engine, in a browser that Debian packages.
enum Engine: String, CaseIterable, Sendable, CustomTestStringConvertible {
    case chromium = "Chromium"
    case firefox = "Firefox"
    case webkit = "WebKit"

    var testDescription: String { rawValue }

    var isInstalled: Bool { programs.allSatisfy { $0 != nil } }

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

    /// WebKit's small browser, which is not in `PATH`.
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
