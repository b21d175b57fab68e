// The cancellation of an upload (draft-12 §4.5; tus, "termination").

import HTTPTypes
import SpoolgateExchange
import SpoolgateJournal
import SpoolgateSpool
import SpoolgateUploadProtocol

extension Request {
    /// Removes the upload (draft-12 §4.5); one that is being delivered is removed after the final response.
    func cancel(_ id: UploadID) {
        withUpload(id, patience: deliveryTimeout) { operation throws(SpoolError) in
            let upload = operation.upload
            // tus has no request that changes something without its version.
            if isUnmarked, upload.state.kind.family == .tus {
                return operation.refuse(.tusVersion)
            }
            var state = upload.state
            // Of others it makes no difference.
            if dialect.knowsLocked { state.finalStatus = try upload.response()?.head.status.code }
            switch state.row(dialect).cancellation {
            case .remove:
                try upload.remove(durably: true)
                operation.journal.cancelled(upload)
                exchange.answer(responses.cancelled())
            case .refuse(let refusal):
                try upload.sync()
                refuse(refusal)
            case .breakOff: breakOff(.deliveryUnderWay)
            }
        }
    }
}
