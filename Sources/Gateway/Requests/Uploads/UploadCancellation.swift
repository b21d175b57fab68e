// The cancellation of an upload (draft-12 §4.5; tus, "termination").

import HTTPTypes
import SpoolgateExchange
import SpoolgateJournal
import SpoolgateSpool
import SpoolgateUploadProtocol

extension Request {
    /// Removes an upload and responds; during a delivery, waits for the final response first.
    func cancel(_ id: UploadID) {
        withUpload(id, patience: deliveryTimeout) { operation throws(SpoolError) in
            let upload = operation.upload
            // In tus, every request that changes an upload must state the protocol version.
            if isUnmarked, upload.state.kind.family == .tus {
                return operation.refuse(.tusVersion)
            }
            var state = upload.state
            // Other dialects do not use the status.
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
