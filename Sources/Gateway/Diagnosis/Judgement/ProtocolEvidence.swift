// The checks of interim responses, refusals, CORS, tus, routing to nodes and the cleanup. Pure.

import HTTPTypes
import SpoolgateCurl
import SpoolgateTextFormats
import SpoolgateUploadProtocol

/// Whether a client receives the interim response 104 to a creation with content.
struct InterimEvidence: Evidence, Sendable, Equatable {
    var check: String { version == .http2 ? "104-http2" : "104-http1" }
    var version: ClientRequest.Version
    var first: ClientInterim?
    var response: ProbeResponse

    var finding: Finding {
        if let first {
            guard first.head.fields.contains(.location) else {
                let fix = "make any proxy in front of nginx pass 1xx responses unchanged"
                return warning("104 without Location: clients cannot resume", fix)
            }
            guard response.head != nil else {
                return failure("104, but then \(response.description)", Fix.noModule)
            }
            let place = first.sent == 0 ? "before content" : "during content"
            return ok("\(place), after \(first.after.milliseconds)")
        }
        guard response.status == 201 else {
            let fixes = [Fix.location] + (response.head == nil ? [Fix.noModule] : [])
            return failure(response.description, fixes)
        }
        return warning(
            "no 104: an upload in a single request cannot be resumed",
            [Fix.module, Fix.location, "make any proxy in front of nginx pass it on"]
        )
    }
}

/// Whether the client receives the gateway's refusals unchanged.
struct ErrorsEvidence: Evidence, Sendable, Equatable {
    var check: String { "errors" }
    /// The response to an append at a wrong offset.
    var conflict: ProbeResponse
    /// The response to an append to an unknown upload.
    var unknown: ProbeResponse

    var finding: Finding {
        let conflictIsRight = conflict.status == 409 && conflict.offset != nil && conflict.isProblem
        if conflictIsRight, unknown.status == 404, unknown.isProblem {
            return ok("409 and 404 arrive with Upload-Offset and problem+json")
        }
        let (wrong, right) = conflictIsRight ? (unknown, 404) : (conflict, 409)
        let text = "the gateway's \(right) arrived as \(wrong.description)"
        return failure(text, [Fix.errors, Fix.hasIt])
    }
}

/// Whether long header fields are accepted, as sent with metadata of several kilobytes or with an upload in hundreds of
/// parts.
struct LongFieldEvidence: Evidence, Sendable, Equatable {
    var check: String { "fields" }
    var size: Int
    /// The response to an offset retrieval.
    var response: ProbeResponse

    var finding: Finding {
        if response.offset != nil { return ok("a field of \(size >> 10) KiB is accepted") }
        return warning(
            "a request with a field of \(size >> 10) KiB failed: \(response.description)",
            "large_client_header_buffers 8 64k;   (in the http block, or in the server block and the default server of its port)"
        )
    }
}

/// Whether browsers let pages of another origin upload (CORS).
struct CrossOriginEvidence: Evidence, Sendable, Equatable {
    var check: String { "cors" }
    var origin: String
    var preflight: ProbeResponse
    /// The response to a creation with the field `Origin`.
    var creation: ProbeResponse

    var finding: Finding {
        let setting = "cors: {origins: [\"\(origin)\"]}  (of the route in spoolgate.yaml)"
        guard (200..<300).contains(preflight.status) else {
            return failure(
                "the browser's preflight (OPTIONS) failed: \(preflight.description)",
                preflight.status == 401 ? "auth_basic $spoolgate_realm;" : setting
            )
        }
        guard allows(preflight) else {
            return failure("pages of \(origin) may not upload", setting)
        }
        guard lists(preflight, .accessControlAllowMethods, "PATCH"),
            lists(preflight, .accessControlAllowHeaders, "Upload-Offset")
        else { return failure("pages may not send PATCH with Upload-Offset", setting) }
        guard allows(creation), lists(creation, .accessControlExposeHeaders, "Location") else {
            return failure("pages may upload, but not read Location", setting)
        }
        return ok("pages of \(origin) may upload and resume")
    }

    private func allows(_ response: ProbeResponse) -> Bool {
        let allowed = response[.accessControlAllowOrigin]
        return allowed == origin || allowed == CrossOrigin.anyOrigin
    }

    private func lists(_ response: ProbeResponse, _ field: HTTPField.Name, _ name: String) -> Bool {
        (response[field] ?? "").split(separator: ",").contains {
            $0.withoutOuterWhitespace.lowercased() == name.lowercased()
        }
    }
}

struct TusEvidence: Evidence, Sendable, Equatable {
    var check: String { "tus" }
    /// The response to OPTIONS, which says whether tus is enabled.
    var options: ProbeResponse
    /// The response to a creation, or nil if tus is not enabled.
    var creation: ProbeResponse?
    /// The response to HEAD, or nil if the creation failed.
    var retrieval: ProbeResponse?

    var isSpoken: Bool { options[.tusVersion] != nil }

    var finding: Finding {
        guard isSpoken else { return skipped("not enabled on this route") }
        guard let creation, creation.status == 201 else {
            let words = creation?.description ?? "not tried"
            return failure("creation failed: \(words)", Fix.location)
        }
        guard let retrieval, retrieval.offset == 0 else {
            let words = retrieval?.description ?? "not tried"
            return failure("offset retrieval failed: \(words)", Fix.location)
        }
        let version = options[.tusVersion] ?? ""
        return ok("tus \(version): upload created and offset retrieved")
    }
}

/// Whether requests for an upload reach the node that received it.
struct NodesEvidence: Evidence, Sendable, Equatable {
    var check: String { "nodes" }
    /// The nodes that received the probe's uploads.
    var names: Set<String>
    /// The nodes in `names` for whose uploads a request reached another node.
    var missed: Set<String>

    /// Takes the path of each upload resource and the response to OPTIONS on this path.
    init(_ uploads: [(target: String, response: ProbeResponse)]) {
        let others = uploads.filter { $0.response.code == Refusal.otherNode.code }
        names = Set(uploads.compactMap { Self.node(in: $0.target) })
        missed = Set(others.compactMap { Self.node(in: $0.target) })
    }

    /// Returns the node in the path of an upload resource, if any.
    static func node(in target: String) -> String? {
        let parts = Array(target.split(separator: "/").suffix(3))
        guard parts.count == 3, parts[0] == "upload-resource" else { return nil }
        return UploadResources.isNode(parts[1].utf8) ? String(parts[1]) : nil
    }

    var finding: Finding {
        let all = names.sorted().joined(separator: ", ")
        guard !missed.isEmpty else { return ok("\(all): requests for an upload reach its node") }
        let nodes = missed.sorted().joined(separator: ", ")
        return failure("requests for uploads of \(nodes) reach another node", Fix.nodes)
    }
}

struct CleanupEvidence: Evidence, Sendable {
    var check: String { "cleanup" }
    var cancelled: Int
    /// The uploads whose cancellation failed, each with the response.
    var left: [(address: String, response: ProbeResponse)]
    /// The number of creations whose response was lost, so that an upload may exist.
    var unnamed = 0

    var finding: Finding {
        let counted = "\(cancelled, of: "upload") cancelled"
        guard let first = left.first else {
            guard unnamed > 0 else { return ok(counted) }
            return warning(
                "\(counted); \(unnamed) may be left, whose URL was lost with the response",
                "nothing to do: uploads that are left expire (limits.max-age)"
            )
        }
        return failure(
            "\(counted), \(left.count) left: \(first.response.description)",
            left.map { "curl -X DELETE \($0.address)" }
        )
    }
}
