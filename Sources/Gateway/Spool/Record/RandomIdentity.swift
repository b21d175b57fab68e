// Identities for new uploads, from the random bits that make them unguessable.

import SpoolgateCrypto
package import SpoolgateUploadProtocol

extension UploadID {
    /// A new identity (draft-12 §4.2.2, §13).
    package static func random() -> UploadID {
        let bits = RandomBits.pair()
        return UploadID(high: bits.high, low: bits.low)
    }
}
