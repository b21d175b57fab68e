// The errors of the spool.

package import SpoolgatePosix
package import SpoolgateUploadProtocol

/// An error of the spool, with the values for a message to the operator.
package enum SpoolError: Error, Sendable, Equatable {
    case disk(SystemError)
    /// Writing would leave less than the reserve: the spool, the bytes to be written (0: unknown), free and to be kept
    /// free.
    case full(directory: String, needed: Int64, free: Int64, reserve: Int64)
    /// Too few new files are possible: the spool, the number left, and the number to leave to others.
    case fewFiles(directory: String, free: Int64, reserve: Int64)
    /// A bound on the number of uploads is reached: the spool and the bound.
    case tooMany(directory: String, UploadBound)
    /// A call failed because the file system, or this user's share of it, is full: the call, the spool, and the free
    /// space, if known.
    case noSpace(SystemError, directory: String, free: FileSystemSpace?)
    /// The upload is in use and was not unlocked in time, or the caller had already unlocked it.
    case busy(UploadID)
    /// Writing would exceed the quota: the spool, the bytes to be written (0: unknown), in use and allowed.
    case overQuota(directory: String, needed: Int64, used: Int64, quota: Int64)
    /// The process or the system has no more descriptors or memory.
    case exhausted(SystemError)
    /// The record of an upload cannot be read; it was moved to `corrupt/`.
    case corrupt(UploadID, reason: String)
    /// A newer program wrote the record of the upload, which was left unchanged.
    case newer(UploadID, reason: String)
    /// The operation does not fit the upload's state, which no request should cause; nothing was changed.
    case contradiction(UploadID, reason: String)
    /// The directory is not a spool, or its format is unknown to this version.
    case unusable(
        directory: String,
        reason: String,
        advice: String = "check --spool or spool.directory"
    )
    /// The kernel's boot identity, which is needed to detect a power failure, cannot be read.
    case bootUnknown(SystemError)
}

/// A bound on the number of uploads.
package enum UploadBound: Sendable, Equatable {
    /// For all uploads.
    case total(Int)
    /// For the undelivered uploads of one client.
    case ofClient(Int)
}

extension SpoolError {
    /// Whether there is no room because of the reserve or the quota.
    package var isNoRoom: Bool {
        switch self {
        case .full, .overQuota: true
        case .disk, .fewFiles, .tooMany, .noSpace, .busy, .exhausted, .corrupt, .newer,
            .contradiction, .unusable, .bootUnknown:
            false
        }
    }
}
