// The open files of this process, by path.

import Foundation

package enum OpenDescriptors {
    /// The descriptors of this process whose file has a path that `isMeant`, with the paths.
    ///
    /// Other threads may open and close files meanwhile.
    package static func of(_ isMeant: (String) -> Bool) -> [(number: Int32, path: String)] {
        let links = "/proc/self/fd"
        let numbers = (try? FileManager.default.contentsOfDirectory(atPath: links)) ?? []
        return numbers.compactMap { name in
            let link = "\(links)/\(name)"
            guard let number = Int32(name),
                let path = try? FileManager.default.destinationOfSymbolicLink(atPath: link),
                isMeant(path)
            else { return nil }
            return (number, path)
        }
    }
}
