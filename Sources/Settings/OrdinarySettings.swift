// How a route's ordinary uploads reach its upstream, in the settings file.
//
// Invariant: what is streamed as it comes is asked for nothing that needs the whole of it.

import UploadProtocol
import Upstream

extension RouteSettings {
    private struct Fault: Error {
        var reason: String
    }

    /// Takes `ordinary` from a route's section, once all is known that it has to fit.
    mutating func decodeOrdinary(_ section: inout SettingsSection) throws(SettingsError) {
        let chosen = try section.value("ordinary", reason: \.reason) { text throws(Fault) in
            guard let ordinary = OrdinaryUploads(rawValue: text) else {
                throw Fault(reason: "it is none of spool, pass")
            }
            if ordinary == .pass, let duty = wholeDuty {
                throw Fault(
                    reason: "what passes as it comes cannot have \(duty), which needs the whole; "
                        + "leave that out, or use ordinary: spool"
                )
            }
            return ordinary
        }
        ordinary = chosen ?? ordinary
    }

    /// The first of the settings that need an ordinary upload whole; nil where there is none.
    private var wholeDuty: String? {
        if !inspection.command.isEmpty { return "inspect.command" }
        if let digest { return "digest: \(digest.rawValue)" }
        if form != .body { return "form: \(form.rawValue)" }
        if reply == .accepted { return "reply: accepted" }
        if case .directory? = upstream.targets.first { return "a directory: upstream" }
        return nil
    }
}
