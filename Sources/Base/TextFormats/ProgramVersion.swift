// The version of everything that is released together.

/// The version of the programs and packages.
package enum ProgramVersion {
    /// The version as `MAJOR.MINOR.PATCH`.
    ///
    /// deploy/deb.sh and deploy/release.sh read this line.
    package static let version = "0.1.0"

    /// Returns a version with its build for people, such as `0.1.0 (82c1e4e)`.
    ///
    /// If `build` is nil, writes `unknown build`.
    package static func text(_ version: String = version, build: String?) -> String {
        "\(version) (\(build ?? "unknown build"))"
    }
}
