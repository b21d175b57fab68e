// swift-tools-version: 6.2

import PackageDescription

let settings: [SwiftSetting] = [
    .swiftLanguageMode(.v6),
    .treatAllWarnings(as: .error),
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
]

/// For a target that the tests run for minutes, also in debug builds.
///
/// No product of the library may have it: SwiftPM refuses unsafe flags in a dependency.
let optimized: [SwiftSetting] = [.unsafeFlags(["-O"], .when(configuration: .debug))]

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
        // A target depends only on targets above it (Tests/FloorTests).
        // System libraries and C targets; each has exactly one importer.
        .systemLibrary(
            name: "CSpoolgateFastCGI",
            path: "Sources/Gateway/CFastCGI",
            pkgConfig: "fcgi",
            providers: [.apt(["libfcgi-dev"])]
        ),
        .systemLibrary(
            name: "CSpoolgateOpenSSL",
            path: "Sources/Base/COpenSSL",
            pkgConfig: "libcrypto",
            providers: [.apt(["libssl-dev"])]
        ),
        .systemLibrary(
            name: "CSpoolgateYAML",
            path: "Sources/Gateway/CYAML",
            pkgConfig: "yaml-0.1",
            providers: [.apt(["libyaml-dev"])]
        ),
        .systemLibrary(
            name: "CSpoolgateCurl",
            path: "Sources/Base/CCurl",
            pkgConfig: "libcurl",
            providers: [.apt(["libcurl4-openssl-dev"])]
        ),
        .target(
            name: "CSpoolgateLinux",
            path: "Sources/Base/CLinux",
            cSettings: [
                .enableWarning("all"), .enableWarning("extra"), .treatAllWarnings(as: .error),
            ]
        ),

        // Base, pure: no I/O, clock or randomness
        .target(
            name: "SpoolgateTextFormats",
            path: "Sources/Base/TextFormats",
            swiftSettings: settings
        ),
        .target(
            name: "SpoolgateUploadProtocol",
            dependencies: ["SpoolgateTextFormats", httpTypes, structuredFields],
            path: "Sources/Base/UploadProtocol",
            swiftSettings: settings
        ),
        // Base
        .target(
            name: "SpoolgatePosix",
            dependencies: ["CSpoolgateLinux"],
            path: "Sources/Base/Posix",
            swiftSettings: settings
        ),
        .target(
            name: "SpoolgateCrypto",
            dependencies: ["CSpoolgateOpenSSL"],
            path: "Sources/Base/Crypto",
            swiftSettings: settings
        ),
        .target(
            name: "SpoolgateCurl",
            dependencies: [
                "SpoolgateUploadProtocol", "SpoolgateTextFormats", "SpoolgatePosix",
                "CSpoolgateCurl", httpTypes,
            ],
            path: "Sources/Base/Curl",
            swiftSettings: settings
        ),
        // The client library does not use the gateway. It must not need unsafe flags: SwiftPM refuses them in
        // dependencies.
        .target(
            name: "ResumableUpload",
            dependencies: [
                "SpoolgateUploadProtocol", "SpoolgateTextFormats", "SpoolgatePosix",
                "SpoolgateCrypto", "SpoolgateCurl", httpTypes,
            ],
            path: "Sources/Client/ResumableUpload",
            swiftSettings: settings
        ),
        .target(
            name: "SpoolgateExchange",
            dependencies: ["SpoolgateUploadProtocol", "SpoolgateTextFormats", "SpoolgatePosix"],
            path: "Sources/Gateway/Exchange",
            swiftSettings: settings + optimized
        ),
        .target(
            name: "SpoolgateSpool",
            dependencies: [
                "SpoolgateUploadProtocol", "SpoolgateTextFormats", "SpoolgatePosix",
                "SpoolgateCrypto", httpTypes,
            ],
            path: "Sources/Gateway/Spool",
            swiftSettings: settings + optimized
        ),
        .target(
            name: "SpoolgateUpstream",
            dependencies: [
                "SpoolgateUploadProtocol", "SpoolgateTextFormats", "SpoolgatePosix",
                "SpoolgateCrypto", "SpoolgateCurl", httpTypes,
            ],
            path: "Sources/Gateway/Upstream",
            swiftSettings: settings
        ),
        .target(
            name: "SpoolgateFastCGIFront",
            dependencies: [
                "SpoolgateUploadProtocol", "SpoolgateTextFormats", "SpoolgatePosix",
                "SpoolgateExchange", "CSpoolgateFastCGI", httpTypes,
            ],
            path: "Sources/Gateway/FastCGIFront",
            swiftSettings: settings + optimized
        ),
        .target(
            name: "SpoolgateSettings",
            dependencies: [
                "SpoolgateUploadProtocol", "SpoolgateTextFormats", "SpoolgatePosix",
                "SpoolgateSpool", "SpoolgateCurl", "SpoolgateUpstream", "CSpoolgateYAML", httpTypes,
                logging,
            ],
            path: "Sources/Gateway/Settings",
            swiftSettings: settings
        ),
        .target(
            name: "SpoolgateJournal",
            dependencies: [
                "SpoolgateUploadProtocol", "SpoolgateTextFormats", "SpoolgatePosix",
                "SpoolgateCrypto", "SpoolgateExchange", "SpoolgateSpool", "SpoolgateUpstream",
                "SpoolgateSettings",
                httpTypes, logging,
            ],
            path: "Sources/Gateway/Journal",
            swiftSettings: settings
        ),
        .target(
            name: "SpoolgateDiagnosis",
            dependencies: [
                "SpoolgateUploadProtocol", "SpoolgateTextFormats", "SpoolgatePosix",
                "SpoolgateCurl", "SpoolgateExchange", "SpoolgateUpstream", "SpoolgateSettings",
                httpTypes,
            ],
            path: "Sources/Gateway/Diagnosis",
            swiftSettings: settings
        ),
        .target(
            name: "SpoolgateDelivery",
            dependencies: [
                "SpoolgateUploadProtocol", "SpoolgateTextFormats", "SpoolgatePosix",
                "SpoolgateCrypto", "SpoolgateExchange", "SpoolgateSpool", "SpoolgateUpstream",
                "SpoolgateSettings", "SpoolgateJournal", httpTypes,
            ],
            path: "Sources/Gateway/Delivery",
            swiftSettings: settings
        ),
        .target(
            name: "SpoolgateRequests",
            dependencies: [
                "SpoolgateUploadProtocol", "SpoolgateTextFormats", "SpoolgatePosix",
                "SpoolgateCrypto", "SpoolgateExchange", "SpoolgateSpool", "SpoolgateUpstream",
                "SpoolgateSettings", "SpoolgateJournal", "SpoolgateDelivery", httpTypes,
            ],
            path: "Sources/Gateway/Requests",
            swiftSettings: settings + optimized
        ),
        .target(
            name: "SpoolgateAdmin",
            dependencies: [
                "SpoolgateUploadProtocol", "SpoolgateTextFormats", "SpoolgatePosix",
                "SpoolgateExchange", "SpoolgateSpool", "SpoolgateJournal",
                "SpoolgateDelivery", "SpoolgateUpstream",
                "SpoolgateRequests", httpTypes,
            ],
            path: "Sources/Gateway/Admin",
            swiftSettings: settings
        ),
        .executableTarget(
            name: "spoolgate",
            dependencies: [
                "SpoolgateUploadProtocol", "SpoolgateTextFormats", "SpoolgatePosix",
                "SpoolgateExchange", "SpoolgateSpool", "SpoolgateCurl", "SpoolgateUpstream",
                "SpoolgateFastCGIFront", "SpoolgateSettings", "SpoolgateJournal",
                "SpoolgateDiagnosis", "SpoolgateDelivery", "SpoolgateRequests",
                "SpoolgateAdmin", argumentParser, logging, httpTypes,
            ],
            path: "Sources/Gateway/Program",
            swiftSettings: settings
        ),

        .executableTarget(
            name: "spoolgate-upload",
            dependencies: [
                "SpoolgateUploadProtocol", "SpoolgateTextFormats", "SpoolgatePosix",
                "SpoolgateCrypto", "ResumableUpload",
                argumentParser, httpTypes,
            ],
            path: "Sources/Client/Program",
            swiftSettings: settings
        ),

        // Tests; Foundation is allowed here.
        .target(
            name: "SpoolgateTestSupport",
            dependencies: ["SpoolgateUploadProtocol", "SpoolgatePosix", httpTypes],
            path: "Tests/TestSupport",
            swiftSettings: testSettings + optimized,
            // libcurl finds the tests' own resolver (TestNames.swift) only if it is an exported symbol.
            linkerSettings: [.unsafeFlags(["-Xlinker", "--export-dynamic-symbol=getaddrinfo"])]
        ),
        .testTarget(
            name: "UploadProtocolTests",
            dependencies: [
                "SpoolgateUploadProtocol", "SpoolgateTextFormats", "SpoolgatePosix",
                "SpoolgateUpstream", "SpoolgateSettings", "SpoolgateDelivery",
                "SpoolgateTestSupport", httpTypes,
            ],
            resources: [.copy("Vectors")],
            swiftSettings: testSettings
        ),
        .testTarget(
            name: "PosixTests",
            dependencies: ["SpoolgatePosix", "SpoolgateCrypto", "SpoolgateTestSupport"],
            swiftSettings: testSettings
        ),
        .testTarget(
            name: "SpoolTests",
            dependencies: [
                "SpoolgateSpool", "SpoolgateUploadProtocol", "SpoolgateTextFormats",
                "SpoolgatePosix", "SpoolgateTestSupport", httpTypes,
            ],
            swiftSettings: testSettings
        ),
        .testTarget(
            name: "UpstreamTests",
            dependencies: [
                "SpoolgateCurl", "SpoolgateUpstream", "SpoolgateUploadProtocol",
                "SpoolgateTextFormats", "SpoolgatePosix", "SpoolgateTestSupport",
                httpTypes,
            ],
            swiftSettings: testSettings
        ),
        .testTarget(
            name: "SettingsTests",
            dependencies: [
                "SpoolgateJournal", "SpoolgateSettings", "SpoolgateUpstream", "SpoolgateCurl",
                "SpoolgateUploadProtocol", "SpoolgateTextFormats", "SpoolgatePosix",
                httpTypes, logging,
            ],
            swiftSettings: testSettings
        ),
        .testTarget(
            name: "DiagnosisTests",
            dependencies: [
                "SpoolgateDiagnosis", "SpoolgateCurl", "SpoolgateExchange", "SpoolgateUpstream",
                "SpoolgateUploadProtocol", "SpoolgateTextFormats", "SpoolgatePosix",
                "SpoolgateTestSupport", httpTypes,
            ],
            swiftSettings: testSettings
        ),
        .testTarget(
            name: "GatewayTests",
            dependencies: [
                "SpoolgateAdmin", "SpoolgateRequests", "SpoolgateDelivery", "SpoolgateJournal",
                "SpoolgateSettings", "SpoolgateSpool", "SpoolgateUpstream", "SpoolgateCurl",
                "SpoolgateExchange", "SpoolgateUploadProtocol", "SpoolgateTextFormats",
                "SpoolgatePosix", "SpoolgateTestSupport", httpTypes,
                logging,
            ],
            resources: [.copy("Transcripts")],
            swiftSettings: testSettings
        ),
        .testTarget(
            name: "FastCGIFrontTests",
            dependencies: [
                "SpoolgateFastCGIFront", "SpoolgateRequests", "SpoolgateJournal",
                "SpoolgateSettings", "SpoolgateSpool", "SpoolgateUpstream", "SpoolgateExchange",
                "SpoolgateUploadProtocol", "SpoolgateTextFormats", "SpoolgatePosix",
                "SpoolgateTestSupport", httpTypes, logging,
            ],
            swiftSettings: testSettings
        ),
        .testTarget(
            name: "FaultTests",
            dependencies: [
                "SpoolgateRequests", "SpoolgateDelivery", "SpoolgateJournal", "SpoolgateSettings",
                "SpoolgateSpool", "SpoolgateUpstream", "SpoolgateExchange",
                "SpoolgateUploadProtocol", "SpoolgatePosix", "SpoolgateTestSupport", httpTypes,
                logging,
            ],
            exclude: ["README.md"],
            swiftSettings: testSettings + optimized
        ),
        .testTarget(
            name: "SimulationTests",
            dependencies: [
                "SpoolgateRequests", "SpoolgateDelivery", "SpoolgateJournal", "SpoolgateSettings",
                "SpoolgateSpool", "SpoolgateUpstream", "SpoolgateExchange", "SpoolgateFastCGIFront",
                "SpoolgateTextFormats", "SpoolgateUploadProtocol", "SpoolgatePosix",
                "SpoolgateCrypto",
                "SpoolgateTestSupport", httpTypes, logging,
            ],
            path: "Tests/Simulation",
            exclude: ["README.md", "faults", "mutants.py"],
            swiftSettings: testSettings
        ),
        .testTarget(
            name: "ResumableUploadTests",
            dependencies: [
                "ResumableUpload", "SpoolgateUploadProtocol", "SpoolgatePosix",
                "SpoolgateTestSupport", httpTypes,
            ],
            swiftSettings: testSettings
        ),
        .executableTarget(
            name: "stream-and-resume",
            dependencies: ["ResumableUpload", httpTypes],
            path: "Tests/Samples/StreamAndResume",
            swiftSettings: testSettings
        ),
        .executableTarget(
            name: "send-many",
            dependencies: ["ResumableUpload", httpTypes],
            path: "Tests/Samples/SendMany",
            swiftSettings: testSettings
        ),
        .executableTarget(
            name: "write-body",
            dependencies: ["ResumableUpload", httpTypes],
            path: "Tests/Samples/WriteBody",
            swiftSettings: testSettings
        ),
        .testTarget(name: "FloorTests", swiftSettings: testSettings + optimized),
        .testTarget(
            name: "EndToEndTests",
            dependencies: [
                "ResumableUpload", "stream-and-resume", "send-many", "write-body", "SpoolgateSpool",
                "SpoolgateUpstream", "SpoolgateUploadProtocol", "SpoolgateTextFormats",
                "SpoolgatePosix", "SpoolgateTestSupport",
                httpTypes,
            ],
            resources: [.copy("Scripts")],
            swiftSettings: testSettings
        ),
        .executableTarget(
            name: "spoolgate-bench",
            dependencies: [
                "SpoolgateUpstream", "SpoolgateCurl", "SpoolgateUploadProtocol", "SpoolgatePosix",
                "SpoolgateTestSupport", httpTypes,
            ],
            path: "Tests/Lab/Bench",
            exclude: ["README.md"],
            swiftSettings: testSettings
        ),
    ]
)
