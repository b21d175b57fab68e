// Responses to OPTIONS: the capabilities of targets and of upload resources (draft-12 §4.1.4; tus).

import HTTPTypes
import SpoolgateDelivery
import SpoolgateExchange
import SpoolgateSettings
import SpoolgateUploadProtocol

extension Request {
    var resourceOptions: Response {
        var response = ResponseBuilder(dialect: dialect, limits: route.settings.limits)
            .resourceOptions()
        response.head.fields.append(contentsOf: tusCapabilities)
        return response
    }

    func passOptions() {
        let builder = ResponseBuilder(dialect: dialect, limits: route.settings.limits)
        func response(_ upstream: ResponseHead) -> ResponseHead {
            var upstream = upstream
            // The upstream may support only POST and return any error; tus clients request options before they upload.
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
        // Without a response from the upstream, the gateway can still report its own capabilities.
        let own = response(ResponseHead(status: .methodNotAllowed))
        passThrough(
            upTo: route.settings.limits.maxSize,
            otherwise: route.settings.tus == .on ? Response(own) : nil,
            response
        )
    }

    private var tusCapabilities: HTTPFields {
        route.settings.tus == .on ? Tus.capabilities(route.settings.limits) : [:]
    }
}
