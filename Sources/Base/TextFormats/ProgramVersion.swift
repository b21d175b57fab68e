// The version of everything that is released together.

/// The version that the programs and the packages have.
package enum ProgramVersion {
    /// `MAJOR.MINOR.PATCH`; deploy/deb.sh and deploy/release.sh read it here.
    package static let version = "0.1.0"
}
