// swift-tools-version: 6.2
// A package that knows nothing of this repository but a tag: Tests/client-package.sh says where that is. It uses the library
// beside two packages that many programs have, and so shows that no two targets have one name.

import PackageDescription

let package = Package(
    name: "client-package",
    dependencies: [
        .package(url: "https://example.org/spoolgate", exact: "99.0.0"),
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
        // Loaded with the others, and not built: that takes minutes.
        .executableTarget(
            name: "digest-once",
            dependencies: [
                .product(name: "ResumableUpload", package: "spoolgate"),
                .product(name: "Crypto", package: "swift-crypto"),
            ]
        ),
    ]
)
