// What targets and upload resources can do, as OPTIONS asks (draft-12 §4.1.4; tus).

import HTTPTypes
import SpoolgateDelivery
import SpoolgateExchange
import SpoolgateSettings
import SpoolgateUploadProtocol

extension Request {
    /// What an upload resource accepts, whatever becomes of the upload.
    var resourceOptions: Response {
        var response = ResponseBuilder(dialect: dialect, limits: route.settings.limits)
            .resourceOptions()
        response.head.fields.append(contentsOf: tusCapabilities)
        return response
    }

    /// Passes a question for the options of a target on, and adds what the gateway adds to them.
    func passOptions() {
        let builder = ResponseBuilder(dialect: dialect, limits: route.settings.limits)
        func answer(_ upstream: ResponseHead) -> ResponseHead {
            var upstream = upstream
            // A form that knows only POST may answer anything; clients of tus ask before they upload.
            if route.settings.tus == .on, upstream.status.code >= 400,
                ![401, 403, 404].contains(upstream.status.code)
            {
                upstream.status = .methodNotAllowed
            }
            var head = builder.options(upstream)
            if head.status.kind == .successful {
                for field in tusCapabilities { head.fields[field.name] = field.value }
            }
            return head
        }
        // Where the upstream cannot be asked, what the gateway does can be told still.
        let own = answer(ResponseHead(status: .methodNotAllowed))
        passThrough(
            atMost: route.settings.limits.maxSize,
            otherwise: route.settings.tus == .on ? Response(own) : nil,
            answer
        )
    }

    private var tusCapabilities: HTTPFields {
        route.settings.tus == .on ? Tus.capabilities(route.settings.limits) : [:]
    }
}
