// swift-tools-version: 6.2
// A package that knows nothing of this repository but a tag: Tests/client-package.sh says where that is.

import PackageDescription

let package = Package(
    name: "upload-once",
    dependencies: [.package(url: "https://example.org/spoolgate", exact: "99.0.0")],
    targets: [
        .executableTarget(
            name: "upload-once",
            dependencies: [.product(name: "ResumableUpload", package: "spoolgate")]
        )
    ]
)
