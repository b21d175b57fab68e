// What the spool's errors mean for its operator, one sentence each.

import SpoolgatePosix
package import SpoolgateSpool
import SpoolgateTextFormats

extension SpoolError: CustomStringConvertible {
    /// The sentence for the operator.
    package var description: String { sentence }

    /// One line for the operator: what was attempted, on what, and what to do.
    package var sentence: String {
        switch self {
        case .disk(let error) where error.isReadOnly:
            "\(error): mounted read-only, or not among the ReadWritePaths= of the service: systemctl edit "
                + "spoolgate spoolgate-purge"
        case .disk(let error): "\(error)"
        case .full(let directory, let needed, let free, let reserve):
            Self.need(needed)
                + "\(ByteSize.rounded(free)) are free on \(directory) and "
                + "\(ByteSize.rounded(reserve)) must stay free: free space there, or lower "
                + "spool.reserve and reload"
        case .fewFiles(let directory, let free, let reserve):
            "only \(free == 1 ? "1 file is" : "\(free) files are") free and \(reserve) must stay free on \(directory): remove files "
                + "there or make its file system with more inodes"
        case .noSpace(let error, let directory, let free):
            "\(error); \(free.map { "\($0.words) on" } ?? "it is not known what is free on") "
                + "\(directory): \(error.roomRemedy)"
        case .overQuota(let directory, let needed, let used, let quota):
            Self.need(needed)
                + "\(directory) holds \(ByteSize.rounded(used)) of at most "
                + "\(ByteSize.rounded(quota)): purge it or raise spool.quota"
        case .tooMany(let directory, .total(let most)):
            "\(directory) holds \(most == 1 ? "1 upload" : "\(most) uploads"), as many as it may: purge it or raise "
                + "spool.maximum-uploads"
        case .tooMany(_, .ofClient(let most)):
            "one client has \(most) unfinished uploads, as many as it may (clients.maximum-uploads)"
        case .exhausted(let error):
            "\(error); raise the limits of open files (LimitNOFILE) and memory, or lower "
                + "threads.maximum"
        case .busy(let id): "upload \(id) is in use and was not let go in time"
        case .corrupt(let id, let reason):
            "the record of upload \(id) is unreadable (\(reason)); it was moved to corrupt"
        case .newer(let id, let reason): "upload \(id) was left alone: \(reason)"
        case .contradiction(let id, let reason):
            "upload \(id) was left as it is: \(reason); this is a fault of spoolgate, please report it "
                + "with this line"
        case .unusable(let directory, let reason, let advice):
            "\(directory) cannot be a spool: \(reason); \(advice)"
        case .bootUnknown(let error):
            "\(error); it tells a power cut from the death of a process; is ProcSubset=pid set for the "
                + "service? Remove it, and whatever else hides /proc/sys"
        }
    }

    private static func need(_ bytes: Int64) -> String {
        bytes > 0 ? "\(ByteSize.rounded(bytes)) are needed, " : ""
    }
}

extension FileSystemSpace {
    fileprivate var words: String {
        let bytes = "\(ByteSize.rounded(freeBytes)) "
        return freeFiles.map { "\(bytes)and \($0) files are free" } ?? "\(bytes)are free"
    }
}
