// Identifies the build of a program.
//
// deploy/identify.sh writes the identity into the linked program, so that a commit requires no compilation.

import CSpoolgateBuild

/// The build of the running program.
package enum ProgramBuild {
    /// The commit that the program was built from; `-modified` is appended if the sources differed from it.
    ///
    /// Nil if no identity was written into the program, as after a plain `swift build`.
    package static var identity: String? {
        let text = String(cString: spoolgate_build())
        return text.isEmpty ? nil : text
    }
}
