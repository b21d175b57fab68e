// What can go wrong in the spool, with all that a sentence for its operator needs.

package import SpoolgatePosix
package import SpoolgateUploadProtocol

/// What can go wrong in the spool.
package enum SpoolError: Error, Sendable, Equatable {
    /// A call on the disk failed.
    case disk(SystemError)
    /// Writing would leave less than the reserve free: the spool, bytes to be written (0: not known
    /// beforehand), bytes free, bytes to keep free.
    case full(directory: String, needed: Int64, free: Int64, reserve: Int64)
    /// Too few files can still be made: the spool, how many can, how many must be left to others.
    case fewFiles(directory: String, free: Int64, reserve: Int64)
    /// There are as many uploads as may be: the spool, which bound.
    case tooMany(directory: String, UploadBound)
    /// A call failed because the file system, or this user's share of it, is full: the call, the spool,
    /// and what is free there; nil: not known.
    case noSpace(SystemError, directory: String, free: FileSystemSpace?)
    /// The upload is in use and was not unlocked in time, or the caller had unlocked it already.
    case busy(UploadID)
    /// Writing would go over the quota: the spool, bytes to be written (0: not known beforehand), bytes
    /// of the data files, most bytes they may have.
    case overQuota(directory: String, needed: Int64, used: Int64, quota: Int64)
    /// The process, or the system, has no descriptor or no memory left.
    case exhausted(SystemError)
    /// The record of an upload cannot be read; it was moved to `corrupt/`.
    case corrupt(UploadID, reason: String)
    /// A newer program wrote the record of an upload; it was left alone.
    case newer(UploadID, reason: String)
    /// A step that does not fit the upload's state, which no request should lead to; nothing was
    /// changed.
    case contradiction(UploadID, reason: String)
    /// The directory is no spool, or one of a format this version does not know.
    case unusable(
        directory: String,
        reason: String,
        advice: String = "check --spool or spool.directory"
    )
    /// The kernel's identity of this boot cannot be read, without which a power cut goes unseen.
    case bootUnknown(SystemError)
}

/// A bound on the number of uploads.
package enum UploadBound: Sendable, Equatable {
    /// On all of them.
    case total(Int)
    /// On those of one client that are not delivered.
    case ofClient(Int)
}

extension SpoolError {
    /// Whether the reserve or the quota leaves no room.
    package var isNoRoom: Bool {
        switch self {
        case .full, .overQuota: true
        case .disk, .fewFiles, .tooMany, .noSpace, .busy, .exhausted, .corrupt, .newer,
            .contradiction, .unusable, .bootUnknown:
            false
        }
    }
}
