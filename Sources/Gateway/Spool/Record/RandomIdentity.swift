// Identities for new uploads.

import SpoolgateCrypto
package import SpoolgateUploadProtocol

extension UploadID {
    /// Returns a new random identity that clients cannot guess (draft-12 §4.2.2, §13).
    package static func random() -> UploadID {
        let bits = RandomBits.pair()
        return UploadID(high: bits.high, low: bits.low)
    }
}
