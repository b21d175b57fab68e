// deploy/identify.sh writes the build's identity into the linked program, so that a commit requires no compilation.

import CSpoolgateLinux

/// The build of the running program.
package enum ProgramBuild {
    /// The commit that the program was built from, with `-modified` if the sources differed from the commit.
    ///
    /// The value is nil if the build wrote no identity, as after a plain `swift build`.
    package static var identity: String? {
        let text = String(cString: spoolgate_build())
        return text.isEmpty ? nil : text
    }
}
