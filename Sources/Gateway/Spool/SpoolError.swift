// The errors of the spool.

package import SpoolgatePosix
package import SpoolgateUploadProtocol

/// An error of the spool, with the values for a message.
package enum SpoolError: Error, Sendable, Equatable {
    case disk(SystemError)
    /// Writing would leave less free space than the reserve.
    ///
    /// `needed` is the number of bytes to be written, or 0 if unknown.
    case full(directory: String, needed: Int64, free: Int64, reserve: Int64)
    /// The file system can hold only `free` more files, fewer than are reserved for others.
    case fewFiles(directory: String, free: Int64, reserve: Int64)
    case tooMany(directory: String, UploadBound)
    /// A call failed because the file system, or this user's quota on it, is full; `free` is nil if unknown.
    case noSpace(SystemError, directory: String, free: FileSystemSpace?)
    /// The upload is in use and was not unlocked in time, or the caller had already unlocked it.
    case busy(UploadID)
    /// Writing `needed` bytes (0 if unknown) would exceed the spool's quota.
    case overQuota(directory: String, needed: Int64, used: Int64, quota: Int64)
    /// The process or the system has run out of file descriptors or memory.
    case exhausted(SystemError)
    /// The record of an upload cannot be read; it was moved to `corrupt/`.
    case corrupt(UploadID, reason: String)
    /// A newer program wrote the record of the upload, which was left unchanged.
    case newer(UploadID, reason: String)
    /// The operation is not allowed in the upload's state, which is a fault of this program. Nothing was changed.
    case contradiction(UploadID, reason: String)
    /// The directory is not a spool, or its format is unknown to this version.
    case unusable(
        directory: String,
        reason: String,
        advice: String = "check --spool or spool.directory"
    )
    /// A power failure came before the upload was durable, and only a daemon removes it.
    case unrecovered(UploadID)
    /// A running daemon sees another boot identity of the kernel than this process, which therefore could take a
    /// living upload for one that a power failure has damaged.
    case otherBoot(directory: String, daemon: String, own: String)
    /// The kernel's boot identity, which is needed to detect a power failure, cannot be read.
    case bootUnknown(SystemError)
}

/// A limit on the number of uploads.
package enum UploadBound: Sendable, Equatable {
    case total(Int)
    case ofClient(Int)
}

extension SpoolError {
    package var isNoRoom: Bool {
        switch self {
        case .full, .overQuota: true
        case .disk, .fewFiles, .tooMany, .noSpace, .busy, .exhausted, .corrupt, .newer,
            .contradiction, .unusable, .unrecovered, .otherBoot, .bootUnknown:
            false
        }
    }
}
