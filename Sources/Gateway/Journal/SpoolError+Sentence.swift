// The operator's messages about errors of the spool.

import SpoolgatePosix
package import SpoolgateSpool
import SpoolgateTextFormats

extension SpoolError: CustomStringConvertible {
    package var description: String { sentence }

    /// The message for the operator, in one line: what failed, the affected file or upload, and what to do.
    package var sentence: String {
        switch self {
        case .disk(let error) where error.isReadOnly:
            "\(error); mount it read-write, or add it to ReadWritePaths= of the service: systemctl edit spoolgate "
                + "spoolgate-purge"
        case .disk(let error) where error.isDenial:
            "\(error); run chown -R to give the whole spool to the daemon's user"
        case .disk(let error) where error.errno == SystemError.replaced:
            "\(error.subject) was replaced or hidden by a mount while the daemon was running; undo that, or restart the "
                + "daemon to use the new directory"
        case .disk(let error): "\(error)"
        case .full(let directory, let needed, let free, let reserve):
            "not enough free space on \(directory): \(Self.need(needed))\(ByteSize.rounded(free)) free, "
                + "\(ByteSize.rounded(reserve)) must stay free; make room there, or lower spool.reserve and reload"
        case .fewFiles(let directory, let free, let reserve):
            "not enough free inodes on \(directory): \(free) free, \(reserve) must stay free; remove files there, or make "
                + "its file system with more inodes"
        case .noSpace(let error, let directory, let free):
            "\(error); \(directory) has \(free?.words ?? "an unknown amount of free space"); \(error.roomRemedy)"
        case .overQuota(let directory, let needed, let used, let quota):
            "quota of \(directory) reached: \(Self.need(needed))\(ByteSize.rounded(used)) of "
                + "\(ByteSize.rounded(quota)) used; purge uploads or raise spool.quota"
        case .tooMany(let directory, .total(let maximum)):
            "\(directory) has reached its limit of \(maximum, of: "upload"); purge uploads or "
                + "raise spool.maximum-uploads"
        case .tooMany(_, .ofClient(let maximum)):
            "a client has reached its limit of \(maximum, of: "unfinished upload") "
                + "(clients.maximum-uploads)"
        case .exhausted(let error):
            "\(error); raise the limits on open files (LimitNOFILE) and memory (MemoryMax), or lower "
                + "threads.maximum"
        case .busy(let id):
            "upload \(id) is in use by another request or process, which did not unlock it in time"
        case .corrupt(let id, let reason):
            "upload \(id) is corrupt: \(reason); its record was moved to corrupt/"
        case .newer(let id, let reason): "upload \(id) was left unchanged: \(reason)"
        case .contradiction(let id, let reason):
            "upload \(id) was left unchanged: \(reason); this is a bug in spoolgate; please report it with "
                + "this line"
        case .unusable(let directory, let reason, let advice):
            "cannot use \(directory) as the spool: \(reason); \(advice)"
        case .unrecovered(let id):
            "upload \(id) was left unchanged: the machine stopped before its content was durable; a daemon removes it "
                + "when it starts"
        case .otherBoot(let directory, let daemon, let own):
            "\(directory) was left unchanged: the running daemon sees the boot identity \(daemon), this process sees "
                + "\(own); run it with the daemon's view of /proc: nsenter --mount --target "
                + "$(systemctl show -P MainPID spoolgate) spoolgate ..."
        case .bootUnknown(let error):
            "\(error); without it, a power failure cannot be distinguished from a crash; remove ProcSubset=pid "
                + "from the service, and anything else that hides /proc/sys"
        }
    }

    private static func need(_ bytes: Int64) -> String {
        bytes > 0 ? "\(ByteSize.rounded(bytes)) needed, " : ""
    }
}

extension FileSystemSpace {
    fileprivate var words: String {
        let bytes = ByteSize.rounded(freeBytes)
        return freeFiles.map { "\(bytes) and \($0) inodes free" } ?? "\(bytes) free"
    }
}
