// The uploads that one build writes and another serves: each state of docs/STATES.md, and each kind of record in
// spoolgate-spool(5) that a daemon can write.
//
// Invariant: each build since the first of format 2 accepts the clients and settings.

import Foundation
import SpoolgateTestSupport
import Testing

extension UpgradeCase {
    /// Each build can write these.
    static let all = received + onTheirWay + made + delivered + undelivered + ended

    /// Only newer builds write these.
    static let ofNewer: [UpgradeCase] = [
        // An older build treats a 401 as final, but its client can complete an upload of a newer build.
        refused("credentials", .refuse("401 Unauthorized"), .waiting, status: 401, complete: "?0") {
            try $0.finish($1)
        },
        // The application may have accepted the upload.
        refused(
            "unavailable",
            .refuse("503 Service Unavailable"),
            .indeterminate,
            status: 503,
            complete: "?1"
        ),
    ]

    private static func part(
        _ name: String,
        route: String = "plain",
        method: String = "POST",
        size: Int = 5_000,
        fields: [String] = [],
        isTus: Bool = false,
        afterPowerCut: UpgradeState = .partial,
        carry: @escaping Step = { stage, upload in try stage.finish(upload) },
        write: @escaping Step
    ) -> UpgradeCase {
        UpgradeCase(
            name,
            route: route,
            method: method,
            size: size,
            fields: fields,
            isTus: isTus,
            .partial,
            afterPowerCut: afterPowerCut,
            write: write,
            carry: carry
        )
    }

    // MARK: Received content

    private static let received: [UpgradeCase] = [
        part("created") { stage, upload in try stage.create(upload) },
        part("begun") { stage, upload in try stage.create(upload, sending: 2_000) },
        part("appended", method: "PUT") { stage, upload in
            try stage.create(upload)
            for end in [1_000, 2_000, 2_500] {
                _ = try stage.append(upload, to: end, complete: false)
            }
        },
        part("known-length") { stage, upload in
            try stage.create(upload, ["Upload-Length: 5000"], sending: 2_000)
        },
        // Content that nginx's module writes.
        part("large", size: 400_000) { stage, upload in
            try stage.create(upload)
            _ = try stage.append(upload, to: 300_000, complete: false)
        },
        part("digest") { stage, upload in
            let digest = try Self.digest(of: upload.content)
            try stage.create(upload, ["Repr-Digest: \(digest)"], sending: 2_000)
        },
        part("tus", isTus: true) { stage, upload in
            try stage.create(upload, ["Upload-Length: 5000", "Upload-Metadata: filename YS50eHQ="])
            _ = try stage.append(upload, to: 2_000, complete: false)
        },
        part(
            "tus-without-length",
            isTus: true,
            carry: { stage, upload in try stage.finish(upload, ["Upload-Length: 5000"]) }
        ) { stage, upload in
            try stage.create(upload, ["Upload-Defer-Length: 1"])
            _ = try stage.append(upload, to: 2_000, complete: false)
        },
        part(
            "owned",
            route: "owned",
            fields: ["X-User: alice"],
            carry: { stage, upload in
                let other = try stage.sandbox.ask("HEAD", upload.resource ?? "", ["X-User: bob"])
                #expect(other.status == 404, "bob can see alice's upload")
                try stage.finish(upload)
            }
        ) { stage, upload in try stage.create(upload, sending: 2_000) },
        // The authorizer has set owner and maximum size.
        part(
            "authorized",
            route: "authorized",
            fields: ["X-User: alice"],
            carry: { stage, upload in
                #expect(upload.listed["owner"] == "alice")
                let large = try stage.sandbox.open(
                    "PATCH",
                    upload.resource ?? "",
                    [
                        "X-User: alice", "Upload-Offset: 2000", "Upload-Complete: ?0",
                        "Content-Type: application/partial-upload",
                    ],
                    length: 3_001
                )
                #expect(try large.read().status == 413)
                try stage.finish(upload)
            }
        ) { stage, upload in try stage.create(upload, sending: 2_000) },
        part("process", route: "process", afterPowerCut: .gone) { stage, upload in
            try stage.create(upload, sending: 2_000)
        },
        part("abandoned", carry: { stage, upload in try stage.expire(upload, days: 8) }) {
            try $0.create($1, sending: 2_000)
        },
    ]

    private static func digest(of content: Data) throws -> String {
        let folder = try ScratchDirectory()
        try content.write(to: folder.url.appending(path: "content"))
        let made = try Command(
            "/usr/bin/openssl",
            [
                "dgst", "-sha256", "-binary", "-out", folder.file("digest"),
                folder.file("content"),
            ]
        )
        #expect(made.status == 0)
        let digest = try Data(contentsOf: folder.url.appending(path: "digest"))
        return "sha-256=:\(digest.base64EncodedString()):"
    }

    // MARK: Requests in progress

    private static let onTheirWay: [UpgradeCase] = [
        // A 104 has reported an offset, and more content followed.
        part("told-under-way", size: 3_000_000) { stage, upload in
            let client = try Self.begin(stage, upload)
            let content = upload.content
            // Content that arrives five seconds after the last report, and 1 MiB, causes the next one.
            client.send(content[..<1_200_000])
            upload.sent = 1_200_000
            try eventually("an offset of \(upload.name)", seconds: 60) {
                if upload.sent < 2_900_000 {
                    client.send(content[upload.sent..<upload.sent + 1_000])
                    upload.sent += 1_000
                }
                return client.isReadable
            }
            upload.told = try #require(
                client.readAny()["upload-offset"].flatMap { Int($0) },
                "no 104 reports an offset"
            )
        },
        // A 104 has reported only the URL: the content is in memory.
        part("untold-under-way", size: 200_000, afterPowerCut: .gone) { stage, upload in
            let client = try Self.begin(stage, upload)
            client.send(upload.content[..<30_000])
            upload.sent = 30_000
        },
        // Content that counts only after its digest is verified.
        part("unverified", size: 700_000) { stage, upload in
            try stage.create(upload, sending: 2_000)
            let digest = try Self.digest(of: upload.content[2_000...])
            try stage.beginAppend(upload, sending: 600_000, ["Content-Digest: \(digest)"])
            try stage.awaitContent(upload, beyond: 2_000)
        },
        delivering("sent-post", method: "POST", .indeterminate),
        // Not all content was durable.
        delivering("sent-put", method: "PUT", .repeated, afterPowerCut: .partial),
        delivering("queued-post", route: "accepted", method: "POST", .indeterminate),
        delivering("queued-put", route: "accepted", method: "PUT", .repeated),
    ]

    /// Starts an upload in one request and receives its URL in a 104.
    private static func begin(
        _ stage: UpgradeStage,
        _ upload: UpgradeUpload
    ) throws -> WireClient {
        let client = try stage.sandbox.open(
            "POST",
            upload.target,
            ["Upload-Complete: ?1", "Upload-Draft-Interop-Version: 8"],
            length: upload.size
        )
        let location = try #require(client.readAny()["location"], "no 104 reports a URL")
        upload.resource = String(location.drop(upTo: "/files/"))
        stage.keep(client)
        return client
    }

    /// Its upstream has received it without responding.
    private static func delivering(
        _ name: String,
        route: String = "plain",
        method: String,
        _ state: UpgradeState,
        afterPowerCut cutState: UpgradeState? = nil
    ) -> UpgradeCase {
        UpgradeCase(
            name,
            route: route,
            method: method,
            state,
            afterPowerCut: cutState,
            write: { stage, upload in
                stage.upstreams.reply(to: upload.name, .hold)
                try stage.create(upload, sending: 2_000)
                if upload.route == "accepted" {
                    let response = try stage.append(upload, to: upload.size, complete: true)
                    #expect(response.status == 202)
                } else {
                    try stage.beginAppend(upload, sending: upload.size)
                    upload.sent = upload.size
                }
                try stage.awaitRequests(upload)
            },
            carry: { stage, upload in
                switch upload.state {
                case .indeterminate: try stage.deliver(upload, by: "requeue")
                case .partial: try stage.finish(upload)
                default: break
                }
            }
        )
    }

    // MARK: Uploads joined from others

    private static let made: [UpgradeCase] = [
        UpgradeCase(
            "parts",
            isTus: true,
            .partial,
            write: { stage, upload in
                for (name, end) in [("parts-whole", 5_000), ("parts-half", 2_000)] {
                    let part = UpgradeUpload(partOf: upload, name, .partial)
                    upload.parts.append(part)
                    try stage.create(part, ["Upload-Concat: partial", "Upload-Length: 5000"])
                    _ = try stage.append(part, to: end, complete: false)
                }
            },
            carry: { stage, upload in
                let half = upload.parts[1]
                half.told = try #require(try stage.ask(half))
                _ = try stage.append(half, to: 5_000, complete: true)
                let response = try Self.join(stage, upload)
                #expect(response.status == 201, "\(response.text)")
                upload.requests += 1
                upload.state = .delivered
                for part in upload.parts { part.state = .delivered }
            }
        ),
        // Complete, but its upstream was not reachable.
        UpgradeCase(
            "joined",
            route: "away",
            isTus: true,
            .waiting,
            write: { stage, upload in
                for name in ["joined-a", "joined-b"] {
                    let part = UpgradeUpload(partOf: upload, name, .delivered)
                    upload.parts.append(part)
                    try stage.create(part, ["Upload-Concat: partial", "Upload-Length: 5000"])
                    _ = try stage.append(part, to: 5_000, complete: true)
                }
                let response = try Self.join(stage, upload)
                #expect(response.status >= 500, "\(response.status)")
                let made = try stage.list().values.first {
                    $0["target"] == upload.target && $0["state"] == "deferred"
                }
                upload.resource = try #require(made?["resource"])
            },
            carry: { stage, upload in
                try stage.upstreams.startLater()
                // The same list of parts finds the same joined upload.
                let response = try Self.join(stage, upload)
                #expect(response.status == 201, "\(response.text)")
                upload.requests += 1
                upload.state = .delivered
            }
        ),
    ]

    private static func join(
        _ stage: UpgradeStage,
        _ upload: UpgradeUpload
    ) throws -> WireClient.Answer {
        let list = upload.parts.compactMap(\.resource).joined(separator: " ")
        let response = try stage.sandbox.ask(
            "POST",
            upload.target,
            ["Tus-Resumable: 1.0.0", "Upload-Concat: final;\(list)"],
            content: Data()
        )
        if let location = response["location"] {
            upload.resource = String(location.drop(upTo: "/files/"))
        }
        return response
    }

    // MARK: Delivered uploads

    private static let delivered: [UpgradeCase] = [
        responded("answered-post", .take, status: 201),
        responded("answered-put", method: "PUT", .take, status: 201),
        responded("refused", .refuse("422 Unprocessable Content"), status: 422),
        // The response is larger than is stored.
        responded("answered-at-length", .takeSaying(300_000), status: 201),
        responded("dropped", route: "dropped", .take, status: 201),
        // Its response is kept for a day.
        responded("forgotten", .take, status: 201) { stage, upload in
            try stage.expire(upload, days: 2)
        },
        UpgradeCase(
            "accepted",
            route: "accepted",
            .delivered,
            write: { stage, upload in try accept(upload, stage, until: ["delivered"]) },
            carry: { _, _ in }
        ),
    ]

    private static func responded(
        _ name: String,
        route: String = "plain",
        method: String = "POST",
        _ reply: UpgradeUpstreams.Reply,
        status: Int,
        carry: @escaping Step = { _, _ in }
    ) -> UpgradeCase {
        UpgradeCase(
            name,
            route: route,
            method: method,
            .responded,
            write: { stage, upload in
                stage.upstreams.reply(to: upload.name, reply)
                try stage.create(upload, sending: 2_000)
                let response = try stage.append(upload, to: upload.size, complete: true)
                #expect(response.status == status, "\(upload.name): \(response.text)")
                stage.take(response, of: upload)
            },
            carry: carry
        )
    }

    // MARK: Complete, undelivered uploads

    private static let undelivered: [UpgradeCase] = [
        // Its client received an error and retries.
        refused("deferred", route: "away", nil, .waiting, status: 502, complete: "?0") {
            try $0.upstreams.startLater()
            try $0.finish($1)
        },
        waiting("queued"), waiting("form", route: "form"),
        // Its record has the credentials of the completing request.
        waiting("completing", route: "completing", ["Authorization: Basic YTpi"]) {
            try $0.deliver($1, by: "requeue")
            try $0.awaitState($1, ["delivered"])
            let sent = $0.upstreams.requests(named: $1.name).last
            #expect(sent?.values("Authorization") == ["Basic YTpi"])
        },
        held("held") { try $0.deliver($1, by: "release") },
        accepted("failed", .refuse("422 Unprocessable Content"), .failed),
        accepted("unanswered", .lose, .indeterminate),
        accepted("unanswered-and-purged", .lose, .indeterminate) { try $0.purge($1) },
        refused("unanswered-at-once", .lose, .indeterminate, status: 502, complete: "?1"),
    ]

    /// An upload whose client waits and receives the delivery's failure.
    private static func refused(
        _ name: String,
        route: String = "plain",
        _ reply: UpgradeUpstreams.Reply?,
        _ state: UpgradeState,
        status: Int,
        complete: String,
        carry: @escaping Step = { stage, upload in try stage.deliver(upload, by: "requeue") }
    ) -> UpgradeCase {
        UpgradeCase(
            name,
            route: route,
            state,
            write: { stage, upload in
                if let reply { stage.upstreams.reply(to: upload.name, reply) }
                try stage.create(upload, sending: 2_000)
                let response = try stage.append(upload, to: upload.size, complete: true)
                #expect(response.status == status && response["upload-complete"] == complete)
            },
            carry: carry
        )
    }

    /// Sends an upload and waits until its record has one of these states.
    private static func accept(
        _ upload: UpgradeUpload,
        _ stage: UpgradeStage,
        _ fields: [String] = [],
        until states: Set<String>
    ) throws {
        try stage.create(upload, sending: 2_000)
        let response = try stage.append(upload, to: upload.size, complete: true, fields)
        #expect(response.status == 202)
        try stage.awaitState(upload, states)
    }

    /// Its upstream is not reachable.
    private static func waiting(
        _ name: String,
        route: String = "queued",
        _ fields: [String] = [],
        carry: @escaping Step = { stage, upload in try stage.deliver(upload, by: "requeue") }
    ) -> UpgradeCase {
        UpgradeCase(
            name,
            route: route,
            .waiting,
            write: { stage, upload in try accept(upload, stage, fields, until: ["deferred"]) },
            carry: carry
        )
    }

    private static func held(_ name: String, carry: @escaping Step) -> UpgradeCase {
        UpgradeCase(
            name,
            route: "queued",
            .held,
            write: { stage, upload in
                try accept(upload, stage, until: ["deferred"])
                let id = try #require(upload.id)
                try eventually("\(name) is held", seconds: 60) {
                    try stage.sandbox.spoolgate("hold", id).status == 0
                }
            },
            carry: carry
        )
    }

    /// Its upstream did not accept it.
    private static func accepted(
        _ name: String,
        _ reply: UpgradeUpstreams.Reply,
        _ state: UpgradeState,
        carry: @escaping Step = { stage, upload in try stage.deliver(upload, by: "requeue") }
    ) -> UpgradeCase {
        UpgradeCase(
            name,
            route: "accepted",
            state,
            write: { stage, upload in
                stage.upstreams.reply(to: upload.name, reply)
                try accept(upload, stage, until: state.words)
            },
            carry: carry
        )
    }

    // MARK: Removed uploads

    private static let ended: [UpgradeCase] = [
        UpgradeCase(
            "cancelled",
            .gone,
            write: { stage, upload in
                try stage.create(upload, sending: 2_000)
                let response = try stage.sandbox.ask("DELETE", upload.resource ?? "")
                #expect(response.status == 204)
            },
            carry: { _, _ in }
        ),
        UpgradeCase(
            "damaged",
            .corrupt,
            write: { stage, upload in
                try stage.create(upload, sending: 2_000)
                let id = try #require(upload.id)
                let record = stage.sandbox.spool.appending(path: "uploads/\(id.prefix(1))/\(id)")
                let file = try FileHandle(forUpdating: record)
                for slot in [0, 4096] {
                    try file.seek(toOffset: UInt64(slot + 20))
                    try file.write(contentsOf: Data("x".utf8))
                }
                _ = try? stage.sandbox.ask("HEAD", upload.resource ?? "")
                try stage.awaitState(upload, ["corrupt"])
            },
            carry: { stage, upload in try stage.purge(upload) }
        ),
    ]
}
