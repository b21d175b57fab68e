// swift-tools-version: 6.2

import PackageDescription

let settings: [SwiftSetting] = [
    .swiftLanguageMode(.v6),
    .treatAllWarnings(as: .error),
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
]

let testSettings: [SwiftSetting] = [
    .swiftLanguageMode(.v6),
    .treatAllWarnings(as: .error),
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("MemberImportVisibility"),
]

let httpTypes = Target.Dependency.product(name: "HTTPTypes", package: "swift-http-types")
let structuredFields = Target.Dependency.product(
    name: "RawStructuredFieldValues",
    package: "swift-http-structured-headers"
)
let logging = Target.Dependency.product(name: "Logging", package: "swift-log")
let argumentParser = Target.Dependency.product(
    name: "ArgumentParser",
    package: "swift-argument-parser"
)

let package = Package(
    name: "spoolgate",
    products: [
        .executable(name: "spoolgate", targets: ["spoolgate"]),
        .executable(name: "spoolgate-upload", targets: ["spoolgate-upload"]),
        .library(name: "ResumableUpload", targets: ["ResumableUpload"]),
    ],
    dependencies: [
        .package(url: "https://github.com/apple/swift-http-types", from: "1.8.0", traits: []),
        .package(
            url: "https://github.com/apple/swift-http-structured-headers",
            from: "1.7.0"
        ),
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
    ],
    targets: [
        // A target depends only on those above it (Tests/FloorTests).
        // System libraries and the one C target; each has exactly one importer.
        .systemLibrary(name: "CFastCGI", pkgConfig: "fcgi", providers: [.apt(["libfcgi-dev"])]),
        .systemLibrary(name: "COpenSSL", pkgConfig: "libcrypto", providers: [.apt(["libssl-dev"])]),
        .systemLibrary(
            name: "CYAML",
            pkgConfig: "yaml-0.1",
            providers: [.apt(["libyaml-dev"])]
        ),
        .systemLibrary(
            name: "CCurl",
            pkgConfig: "libcurl",
            providers: [.apt(["libcurl4-openssl-dev"])]
        ),
        .target(
            name: "CLinux",
            cSettings: [
                .enableWarning("all"), .enableWarning("extra"), .treatAllWarnings(as: .error),
            ]
        ),

        // Floor 0
        .target(name: "TextFormats", swiftSettings: settings),
        .target(
            name: "UploadProtocol",
            dependencies: ["TextFormats", httpTypes, structuredFields],
            swiftSettings: settings
        ),
        // Floor 1
        .target(name: "Posix", dependencies: ["CLinux"], swiftSettings: settings),
        .target(name: "Crypto", dependencies: ["COpenSSL"], swiftSettings: settings),
        .target(
            name: "Curl",
            dependencies: ["UploadProtocol", "TextFormats", "Posix", "CCurl", httpTypes],
            swiftSettings: settings
        ),
        // Floor 2
        // The client library: on its own, beside the gateway. What it needs must do without unsafe flags.
        .target(
            name: "ResumableUpload",
            dependencies: ["UploadProtocol", "TextFormats", "Posix", "Crypto", "Curl", httpTypes],
            swiftSettings: settings
        ),
        .target(
            name: "Exchange",
            dependencies: ["UploadProtocol", "TextFormats", "Posix"],
            swiftSettings: settings
        ),
        .target(
            name: "Spool",
            dependencies: ["UploadProtocol", "TextFormats", "Posix", "Crypto", httpTypes],
            swiftSettings: settings
        ),
        .target(
            name: "Upstream",
            dependencies: [
                "UploadProtocol", "TextFormats", "Posix", "Crypto", "Curl", httpTypes,
            ],
            swiftSettings: settings
        ),
        // Floor 3
        .target(
            name: "FastCGIFront",
            dependencies: [
                "UploadProtocol", "TextFormats", "Posix", "Exchange", "CFastCGI", httpTypes,
            ],
            swiftSettings: settings
        ),
        .target(
            name: "Settings",
            dependencies: [
                "UploadProtocol", "TextFormats", "Posix", "Spool", "Upstream", "CYAML", httpTypes,
                logging,
            ],
            swiftSettings: settings
        ),
        // Floor 4
        .target(
            name: "Journal",
            dependencies: [
                "UploadProtocol", "TextFormats", "Posix", "Crypto", "Exchange", "Spool", "Upstream",
                "Settings",
                httpTypes, logging,
            ],
            swiftSettings: settings
        ),
        .target(
            name: "Diagnosis",
            dependencies: [
                "UploadProtocol", "TextFormats", "Posix", "Curl", "Upstream", "Settings", httpTypes,
            ],
            swiftSettings: settings
        ),
        // Floor 5
        .target(
            name: "Delivery",
            dependencies: [
                "UploadProtocol", "TextFormats", "Posix", "Crypto", "Exchange", "Spool", "Upstream",
                "Settings", "Journal", httpTypes,
            ],
            swiftSettings: settings
        ),
        // Floor 6
        .target(
            name: "Gateway",
            dependencies: [
                "UploadProtocol", "TextFormats", "Posix", "Crypto", "Exchange", "Spool", "Upstream",
                "Settings", "Journal", "Delivery", httpTypes,
            ],
            swiftSettings: settings
        ),
        // Floor 7
        .target(
            name: "Admin",
            dependencies: [
                "UploadProtocol", "TextFormats", "Posix", "Exchange", "Spool", "Journal",
                "Delivery",
                "Gateway", httpTypes,
            ],
            swiftSettings: settings
        ),
        // Floor 8
        .executableTarget(
            name: "spoolgate",
            dependencies: [
                "UploadProtocol", "TextFormats", "Posix", "Exchange", "Spool", "Curl", "Upstream",
                "FastCGIFront", "Settings", "Journal", "Diagnosis", "Delivery", "Gateway",
                "Admin", argumentParser, logging, httpTypes,
            ],
            swiftSettings: settings
        ),

        // The client's command: beside the gateway, above the library.
        .executableTarget(
            name: "spoolgate-upload",
            dependencies: [
                "UploadProtocol", "TextFormats", "Posix", "Crypto", "ResumableUpload",
                argumentParser, httpTypes,
            ],
            swiftSettings: settings
        ),

        // Tests; Foundation is allowed here.
        .target(
            name: "TestSupport",
            dependencies: ["UploadProtocol", "Posix", httpTypes],
            path: "Tests/TestSupport",
            swiftSettings: testSettings,
            // libcurl finds the tests' own look-up of names (TestNames.swift) only among exported symbols.
            linkerSettings: [.unsafeFlags(["-Xlinker", "--export-dynamic-symbol=getaddrinfo"])]
        ),
        .testTarget(
            name: "UploadProtocolTests",
            dependencies: [
                "UploadProtocol", "TextFormats", "Posix", "Upstream", "Settings", "Delivery",
                "TestSupport", httpTypes,
            ],
            resources: [.copy("Vectors")],
            swiftSettings: testSettings
        ),
        .testTarget(
            name: "PosixTests",
            dependencies: ["Posix", "Crypto", "TestSupport"],
            swiftSettings: testSettings
        ),
        .testTarget(
            name: "SpoolTests",
            dependencies: [
                "Spool", "UploadProtocol", "TextFormats", "Posix", "TestSupport", httpTypes,
            ],
            swiftSettings: testSettings
        ),
        .testTarget(
            name: "UpstreamTests",
            dependencies: [
                "Curl", "Upstream", "UploadProtocol", "TextFormats", "Posix", "TestSupport",
                httpTypes,
            ],
            swiftSettings: testSettings
        ),
        .testTarget(
            name: "SettingsTests",
            dependencies: [
                "Journal", "Settings", "Upstream", "UploadProtocol", "TextFormats", "Posix",
                httpTypes, logging,
            ],
            swiftSettings: testSettings
        ),
        .testTarget(
            name: "DiagnosisTests",
            dependencies: [
                "Diagnosis", "Curl", "Upstream", "UploadProtocol", "TextFormats", "Posix",
                "TestSupport", httpTypes,
            ],
            swiftSettings: testSettings
        ),
        .testTarget(
            name: "GatewayTests",
            dependencies: [
                "Admin", "Gateway", "Delivery", "Journal", "Settings", "Spool", "Upstream",
                "Exchange", "UploadProtocol", "TextFormats", "Posix", "TestSupport", httpTypes,
                logging,
            ],
            resources: [.copy("Transcripts")],
            swiftSettings: testSettings
        ),
        .testTarget(
            name: "FastCGIFrontTests",
            dependencies: [
                "FastCGIFront", "Gateway", "Journal", "Settings", "Spool", "Upstream", "Exchange",
                "UploadProtocol", "TextFormats", "Posix", "TestSupport", httpTypes, logging,
            ],
            swiftSettings: testSettings
        ),
        .testTarget(
            name: "FaultTests",
            dependencies: [
                "Gateway", "Delivery", "Journal", "Settings", "Spool", "Upstream", "Exchange",
                "UploadProtocol", "Posix", "TestSupport", httpTypes, logging,
            ],
            exclude: ["README.md"],
            swiftSettings: testSettings
        ),
        .testTarget(
            name: "ResumableUploadTests",
            dependencies: ["ResumableUpload", "UploadProtocol", "Posix", "TestSupport", httpTypes],
            swiftSettings: testSettings
        ),
        .executableTarget(
            name: "stream-and-resume",
            dependencies: ["ResumableUpload", httpTypes],
            path: "Tests/Samples/StreamAndResume",
            swiftSettings: testSettings
        ),
        .testTarget(name: "FloorTests", swiftSettings: testSettings),
        .testTarget(
            name: "EndToEndTests",
            dependencies: [
                "ResumableUpload", "stream-and-resume", "Spool", "UploadProtocol", "TextFormats",
                "Posix", "TestSupport",
                httpTypes,
            ],
            resources: [.copy("Scripts")],
            swiftSettings: testSettings
        ),
        .executableTarget(
            name: "spoolgate-bench",
            dependencies: ["Upstream", "UploadProtocol", "Posix", "TestSupport", httpTypes],
            path: "Tests/Bench",
            exclude: ["README.md"],
            swiftSettings: testSettings
        ),
    ]
)
