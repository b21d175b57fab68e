// deploy/identify.sh writes the identity of the build into the linked program, so that a commit requires no
// compilation.

import CSpoolgateBuild

/// The build of the running program.
package enum ProgramBuild {
    /// The commit that the program was built from, with `-modified` if the sources differed.
    ///
    /// Nil if no identity was written, as after a plain `swift build`.
    package static var identity: String? {
        let text = String(cString: spoolgate_build())
        return text.isEmpty ? nil : text
    }
}
