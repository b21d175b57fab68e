// swift-tools-version: 6.2
// A package that uses a tag of this repository, which Tests/client-package.sh provides. It uses the library with two
// packages that many programs use, and so shows that no two targets have the same name.

import PackageDescription

let package = Package(
    name: "client-package",
    dependencies: [
        .package(url: "https://example.org/spoolgate", from: "0.1.0"),
        .package(url: "https://github.com/swift-server/async-http-client", from: "1.30.0"),
        .package(url: "https://github.com/apple/swift-crypto", from: "3.12.3"),
    ],
    targets: [
        .executableTarget(
            name: "relay",
            dependencies: [
                .product(name: "ResumableUpload", package: "spoolgate"),
                .product(name: "AsyncHTTPClient", package: "async-http-client"),
            ]
        ),
        // Resolved with the others, but not built, which would take minutes.
        .executableTarget(
            name: "digest-once",
            dependencies: [
                .product(name: "ResumableUpload", package: "spoolgate"),
                .product(name: "Crypto", package: "swift-crypto"),
            ]
        ),
    ]
)
