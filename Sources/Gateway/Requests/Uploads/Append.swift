// An append to an upload (draft-12 §4.4; tus, "PATCH"), checked before its content is read.
//
// `UploadState` makes the decisions.

import SpoolgateDelivery
import SpoolgateSettings
import SpoolgateSpool
import SpoolgateUploadProtocol

extension Request {
    func append(_ append: UploadRequest.Append, to id: UploadID) {
        if answersUnderWay(id, append) { return }
        withUpload(id, patience: deliveryTimeout) { operation throws(SpoolError) in
            try operation.append(append)
        }
    }
}

extension UploadOperation {
    fileprivate func append(_ append: UploadRequest.Append) throws(SpoolError) {
        switch upload.state.decide(append, dialect: dialect, limits: route.settings.limits) {
        case .receive(let ceiling):
            try checkRoom(for: append, ceiling)
            if let length = ceiling.length { try upload.setLength(length) }
            try receive(upTo: ceiling, append.completeness)
        case .answer(let answer):
            try carryOut(answer)
        }
    }

    /// Refuses an append if the spool has no space for the content; an empty append needs no space.
    private func checkRoom(
        for append: UploadRequest.Append,
        _ ceiling: UploadState.Ceiling
    ) throws(SpoolError) {
        guard ceiling.offset > offset, append.contentLength != .known(0) else { return }
        let rest = append.completeness == .incomplete ? nil : ceiling.length.map { $0 - offset }
        try gateway.spool.checkRoom(for: append.contentLength.count ?? rest ?? 0)
    }
}
