// Which build of the sources a program is.
//
// The identity is written into the linked program (deploy/identify.sh), so that a commit causes nothing to be compiled.

import CSpoolgateBuild

/// The build that the running program is.
package enum ProgramBuild {
    /// The commit that the program was built from, with `-modified` after it if the sources differed from the commit.
    ///
    /// Nil if nothing was written into the program, as after a plain `swift build`.
    package static var identity: String? {
        let text = String(cString: spoolgate_build())
        return text.isEmpty ? nil : text
    }
}
