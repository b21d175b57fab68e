// The tests' requests, each as one call.

import HTTPTypes
@testable import SpoolgateExchange
@testable import SpoolgateRequests
import SpoolgateSpool
import SpoolgateUploadProtocol

let tooLargeToBePlain = [UInt8](repeating: 7, count: Upload.maximumInBuffer + 1)

extension ScriptedExchange {
    typealias Steps = [Step]

    /// `complete`: it has the whole upload.
    static func creation(
        _ steps: Steps = ["hello"],
        complete: Bool = true,
        length: ContentLength? = nil,
        uploadLength: Int64? = nil,
        method: HTTPRequest.Method = .post,
        version: Int? = 10,
        target: String = "/files",
        fields: HTTPFields = [:],
        context: ExchangeContext = ExchangeContext(interimStatuses: [104])
    ) -> ScriptedExchange {
        var fields = fields
        fields[.uploadComplete] = complete ? "?1" : "?0"
        if version == 3 { fields[.uploadIncomplete] = complete ? "?0" : "?1" }
        if let uploadLength { fields[.uploadLength] = "\(uploadLength)" }
        return ScriptedExchange(
            method,
            target,
            fields.speaking(version),
            steps,
            length: length,
            context: context
        )
    }

    static func append(
        _ location: String,
        at offset: Int64,
        _ steps: Steps = [],
        complete: Bool = true,
        length: ContentLength? = nil,
        version: Int? = 10,
        fields: HTTPFields = [:],
        context: ExchangeContext = ExchangeContext(interimStatuses: [104])
    ) -> ScriptedExchange {
        var fields = fields
        fields[.uploadComplete] = complete ? "?1" : "?0"
        if version == 3 { fields[.uploadIncomplete] = complete ? "?0" : "?1" }
        fields[.uploadOffset] = "\(offset)"
        fields[.contentType] = "application/partial-upload"
        return ScriptedExchange(
            .patch,
            location,
            fields.speaking(version),
            steps,
            length: length,
            context: context
        )
    }

    static func retrieval(
        _ location: String,
        version: Int? = 10,
        context: ExchangeContext = ExchangeContext(interimStatuses: [104])
    ) -> ScriptedExchange {
        ScriptedExchange(
            .head,
            location,
            HTTPFields().speaking(version),
            length: .unknown,
            context: context
        )
    }

    static func status(
        _ location: String,
        context: ExchangeContext = ExchangeContext.empty
    ) -> ScriptedExchange {
        ScriptedExchange(.get, "\(location)/status", [:], length: .unknown, context: context)
    }

    static func cancellation(
        _ location: String,
        context: ExchangeContext = ExchangeContext(interimStatuses: [104])
    ) -> ScriptedExchange {
        ScriptedExchange(.delete, location, [:], length: .unknown, context: context)
    }
}

extension HTTPFields {
    func speaking(_ version: Int?) -> HTTPFields {
        var fields = self
        if let version { fields[.uploadDraftInteropVersion] = "\(version)" }
        return fields
    }
}

extension GatewayUnderTest {
    func createPartial(
        _ text: String = "hello",
        uploadLength: Int64? = nil,
        method: HTTPRequest.Method = .post,
        version: Int? = 10,
        fields: HTTPFields = [:],
        context: ExchangeContext = ExchangeContext(interimStatuses: [104])
    ) -> String {
        let record = serve(
            .creation(
                [.text(text)],
                complete: false,
                uploadLength: uploadLength,
                method: method,
                version: version,
                fields: fields,
                context: context
            )
        )
        return record[.location] ?? "no location, status \(record.status ?? 0)"
    }
}
