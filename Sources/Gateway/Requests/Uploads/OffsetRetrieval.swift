// The retrieval of an offset (draft-12 §4.3), made durable before it is told.

import HTTPTypes
import SpoolgateDelivery
import SpoolgateExchange
import SpoolgateSpool
import SpoolgateUploadProtocol

extension Request {
    /// Tells the offset, made durable first (draft-12 §4.3).
    func retrieveOffset(_ id: UploadID) {
        if answersUnderWay(id) { return }
        withUpload(id, patience: inUseTimeout) { operation throws(SpoolError) in
            try operation.retrieveOffset()
        }
    }
}

extension UploadOperation {
    fileprivate func retrieveOffset() throws(SpoolError) {
        var decision = try seen().decideRetrieval(dialect)
        if decision == .deliverFirst {
            // A delivery is no short request.
            if request.ticket?.isHurried == true { return breakOff(.busy) }
            try deliverUnseen()
            decision = try seen().decideRetrieval(dialect, hasTried: true)
        }
        // Also of one that is held: who is told that must not find it gone.
        try upload.sync()
        switch decision {
        case .tell(let completeness):
            exchange.answer(
                responses.offsetTold(
                    upload.state,
                    completeness,
                    remainingAge: max(0, request.remainingAge(of: upload)),
                    response: dialect.family == .tus ? try upload.response()?.head : nil
                )
            )
        case .refuse(let refusal): refuse(refusal)
        case .deliverFirst, .breakOff: breakOff(.deliveryUnderWay)
        }
    }

    /// The state that decides on an offset retrieval.
    private func seen() throws(SpoolError) -> UploadState {
        var state = upload.state
        state.isAccepted = route.hasAccepted(nextAttempt: upload.nextAttempt)
        // Others are told nothing of it, and it is not read for them.
        if dialect.takesOffsetForSuccess {
            state.finalStatus = try upload.response()?.head.status.code
        }
        return state
    }
}
