// Offset retrieval (draft-12 §4.3): the offset is made durable before it is acknowledged.

import HTTPTypes
import SpoolgateDelivery
import SpoolgateExchange
import SpoolgateSpool
import SpoolgateUploadProtocol

extension Request {
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
            // A delivery takes too long for a request that was admitted as a short one.
            if request.ticket?.isHurried == true { return breakOff(.busy) }
            try deliverUnseen()
            decision = try seen().decideRetrieval(dialect, hasTried: true)
        }
        // An upload on hold must still be on hold if a power failure follows this response.
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

    private func seen() throws(SpoolError) -> UploadState {
        var state = upload.state
        state.isAccepted = route.hasAccepted(upload)
        // Other rows and dialects do not use the status.
        if dialect.takesOffsetForSuccess || state.phase == .failed {
            state.finalStatus = try upload.response()?.head.status.code
        }
        return state
    }
}
