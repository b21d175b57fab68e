// The version of everything that is released together.

/// The version of the programs and packages.
package enum ProgramVersion {
    /// `MAJOR.MINOR.PATCH`; deploy/deb.sh and deploy/release.sh read it here.
    package static let version = "0.1.0"

    /// A version with its build, for people: `0.1.0 (82c1e4e)`.
    ///
    /// - Parameters:
    ///   - version: the version.
    ///   - build: the identity of the build, or nil for `unknown build`.
    /// - Returns: the text.
    package static func text(_ version: String = version, build: String?) -> String {
        "\(version) (\(build ?? "unknown build"))"
    }
}
