// The errors of the spool.

package import SpoolgatePosix
package import SpoolgateUploadProtocol

/// An error of the spool, with the values for a message to the operator.
package enum SpoolError: Error, Sendable, Equatable {
    case disk(SystemError)
    /// Writing would leave less than the reserve.
    ///
    /// The values are the spool, and the bytes to be written (0 if unknown), free, and to be kept free.
    case full(directory: String, needed: Int64, free: Int64, reserve: Int64)
    /// The file system can hold too few new files: the spool, the number of files left, and the number reserved for
    /// others.
    case fewFiles(directory: String, free: Int64, reserve: Int64)
    /// A limit on the number of uploads is reached: the spool and the limit.
    case tooMany(directory: String, UploadBound)
    /// A call failed because the file system, or this user's quota on it, is full.
    ///
    /// The values are the call, the spool, and the free space, or nil if unknown.
    case noSpace(SystemError, directory: String, free: FileSystemSpace?)
    /// The upload is in use and was not unlocked in time, or the caller had already unlocked it.
    case busy(UploadID)
    /// Writing would exceed the spool's quota: the spool, and the bytes to be written (0 if unknown), in use, and
    /// allowed.
    case overQuota(directory: String, needed: Int64, used: Int64, quota: Int64)
    /// The process or the system has run out of file descriptors or memory.
    case exhausted(SystemError)
    /// The record of an upload cannot be read; it was moved to `corrupt/`.
    case corrupt(UploadID, reason: String)
    /// A newer program wrote the record of the upload, which was left unchanged.
    case newer(UploadID, reason: String)
    /// The operation is not allowed in the upload's state, a fault of this program; nothing was changed.
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

/// A limit on the number of uploads.
package enum UploadBound: Sendable, Equatable {
    /// The maximum number of all uploads in the spool.
    case total(Int)
    /// The maximum number of undelivered uploads of one client.
    case ofClient(Int)
}

extension SpoolError {
    /// Whether the error is that too little space is free or that the quota is reached.
    package var isNoRoom: Bool {
        switch self {
        case .full, .overQuota: true
        case .disk, .fewFiles, .tooMany, .noSpace, .busy, .exhausted, .corrupt, .newer,
            .contradiction, .unusable, .bootUnknown:
            false
        }
    }
}
