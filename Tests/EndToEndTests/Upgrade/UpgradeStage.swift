// A spool that one build writes and another serves.
//
// Invariant: each complete request to an upstream is accounted for before and after each step.

import Foundation
import SpoolgatePosix
import SpoolgateTestSupport
import Testing

final class UpgradeStage {
    enum Kind: String, CaseIterable {
        case plain
        /// The spool of one of several nodes behind one web server.
        case node
        /// Each process is a writer of its own.
        case shared

        /// Whether another process's content is treated as after a power failure.
        var isAfterPowerCut: Bool { self == .shared }
    }

    let sandbox: Sandbox
    let upstreams: UpgradeUpstreams
    /// In the order of the cases.
    private(set) var uploads: [UpgradeUpload] = []
    /// The names of those that came to their end.
    private var carried: Set<String> = []
    private let routes: Set<String>
    /// Each has a request in progress.
    private var open: [WireClient] = []
    /// The uploads' age counts from then.
    private var written = Date()

    private static let routes: [String: [String]] = [
        "plain": ["upstream: UP/application"],
        "away": ["upstream: UP/later"],
        "accepted": ["upstream: UP/application", "reply: accepted"],
        "queued": ["upstream: UP/later", "reply: accepted"],
        "form": ["upstream: UP/later", "reply: accepted", "form: multipart"],
        "completing": ["upstream: UP/later", "reply: accepted", "credentials: completing"],
        "owned": ["upstream: UP/application"],
        "authorized": ["upstream: UP/application", "authorize: {url: 'UP/authorizer:/may'}"],
    ]

    init(
        _ build: String,
        _ kind: Kind = .plain,
        stored: StoredSpool? = nil,
        sources: URL = Sandbox.root
    ) throws {
        let upstreams = try UpgradeUpstreams()
        self.upstreams = upstreams
        func lines(of route: [String]) -> [String] {
            // The long intervals prevent retries during a test.
            route.map { $0.replacingOccurrences(of: "UP/", with: upstreams.url("")) } + [
                "limits: {min-size: 0}",
                "queue: {minimum-backoff: 1h, maximum-backoff: 1h}",
            ]
        }
        var routes = Self.routes
        routes["dropped"] = ["upstream: directory:\(upstreams.dropDirectory)"]
        // A shared spool's writer changes, which content of `promise: process` does not survive.
        if kind != .shared { routes["process"] = ["upstream: UP/application", "promise: process"] }
        self.routes = Set(routes.keys)
        // Earlier modules write content only in locations that enable it.
        let interim = sources.appending(path: "nginx/module/interim.conf")
        let receives = try String(contentsOf: interim, encoding: .utf8)
            .contains(/(?m)^spool_receive on;/)
        sandbox = try Sandbox(
            routes: routes.mapValues(lines(of:)),
            extra: [
                "interim: {heartbeat: 1s}",
                "events: {webhook: {url: '\(upstreams.url("receiver")):/events'}}",
            ] + (kind == .plain ? [] : ["node: n1"]),
            front: .nginxServing(
                routes.keys.sorted().map { name in
                    """
                    location ^~ /files/\(name)/ {
                        include pass*.conf;
                        fastcgi_param SPOOLGATE_ROUTE \(name);
                        \(receives ? "" : "spool_receive on;")
                        \(name == "owned" ? "fastcgi_param SPOOLGATE_OWNER $http_x_user;" : "")
                        fastcgi_param SPOOLGATE_ORIGIN $scheme://$host:$server_port;
                        include location*.conf;
                    }

                    """
                }.joined()
            ),
            spool: stored?.directory,
            spoolSettings: kind == .shared ? ["shared: true"] : [],
            build: build,
            sources: sources
        )
        guard let stored else { return }
        (uploads, written) = (stored.uploads, stored.written)
        for upload in uploads { upload.earlierRequests = upload.requests }
    }

    // MARK: Builds

    /// Brings an upload into the state of each case.
    func write(_ cases: [UpgradeCase], isAfterPowerCut: Bool = false) throws {
        for scene in cases where routes.contains(scene.route) {
            let upload = UpgradeUpload(scene, isAfterPowerCut: isAfterPowerCut)
            uploads.append(upload)
            do { try scene.write(self, upload) } catch {
                throw NeverHappened(description: "writing \(scene.name): \(error)\n\(sandbox.log)")
            }
        }
    }

    /// Records each upload's facts and kills the daemon; then the application accepts all uploads.
    func endWriting() throws {
        let listed = try list()
        for upload in uploads + uploads.flatMap(\.parts) {
            if let id = upload.id {
                upload.listed = (listed[id] ?? [:]).filter {
                    Self.constant.contains($0.key) && $0.value != "<null>"
                }
            }
            upload.requests = count(upload)
        }
        sandbox.kill()
        open = []
        written = Date()
        upstreams.takeAll()
    }

    func replace(by build: String) throws {
        sandbox.kill()
        sandbox.build = build
        try sandbox.startAgain()
    }

    // MARK: Clients

    /// Keeps a request in progress until the daemon ends.
    func keep(_ client: WireClient) { open.append(client) }

    func create(
        _ upload: UpgradeUpload,
        _ fields: [String] = [],
        sending count: Int = 0
    ) throws {
        let own =
            upload.isTus
            ? ["Tus-Resumable: 1.0.0"]
                + (count > 0 ? ["Content-Type: application/offset+octet-stream"] : [])
            : ["Upload-Complete: ?0"]
        let response = try sandbox.ask(
            upload.method,
            upload.target,
            own + upload.fields + fields,
            content: upload.content.prefix(count)
        )
        guard response.status == 201, let location = response["location"] else {
            throw WireClient.Broken(description: "not created: \(response.status) \(response.text)")
        }
        upload.resource = String(location.drop(upTo: "/files/"))
        upload.sent = count
        try tell(upload, response["upload-offset"] ?? "0")
    }

    /// Appends from the client's offset up to `end`.
    func append(
        _ upload: UpgradeUpload,
        to end: Int,
        complete: Bool,
        _ fields: [String] = []
    ) throws -> WireClient.Answer {
        let content = upload.content[upload.told..<end]
        let response = try sandbox.ask(
            "PATCH",
            try #require(upload.resource),
            appendFields(upload, complete) + fields,
            content: content
        )
        upload.sent = max(upload.sent, end)
        if response.status == 202, let link = response["link"] {
            upload.status = String(link.drop(upTo: "/files/").prefix { $0 != ">" })
        }
        if !complete || upload.isTus {
            try #require(
                response.status == 204,
                "\(upload.name): \(response.status) \(response.text)"
            )
            try tell(upload, response["upload-offset"])
        }
        return response
    }

    /// Starts the completing append, sends content up to `end`, and keeps the connection.
    func beginAppend(_ upload: UpgradeUpload, sending end: Int, _ fields: [String] = []) throws {
        let client = try sandbox.open(
            "PATCH",
            try #require(upload.resource),
            appendFields(upload, true) + fields,
            length: upload.size - upload.told
        )
        client.send(upload.content[upload.told..<end])
        keep(client)
    }

    private func appendFields(_ upload: UpgradeUpload, _ isComplete: Bool) -> [String] {
        let own =
            upload.isTus
            ? ["Tus-Resumable: 1.0.0", "Content-Type: application/offset+octet-stream"]
            : [
                "Upload-Complete: ?\(isComplete ? 1 : 0)",
                "Content-Type: application/partial-upload",
            ]
        return own + ["Upload-Offset: \(upload.told)"] + upload.fields
    }

    /// nil if the upload does not exist.
    func ask(_ upload: UpgradeUpload) throws -> Int? {
        let own = upload.isTus ? ["Tus-Resumable: 1.0.0"] : []
        // The connection breaks if the queue holds the lock.
        return try eventually("the offset of \(upload.name) is reported", seconds: 60) {
            () -> Int?? in
            let response = try? sandbox.ask(
                "HEAD",
                try #require(upload.resource),
                own + upload.fields
            )
            switch response?.status {
            case 200, 204: return response?["upload-offset"].flatMap { Int($0) }
            case 404: return .some(nil)
            default: return nil
            }
        }
    }

    private func tell(_ upload: UpgradeUpload, _ offset: String?) throws {
        upload.told = try #require(offset.flatMap { Int($0) }, "\(upload.name) has no offset")
    }

    func awaitContent(_ upload: UpgradeUpload, beyond offset: UInt64) throws {
        let id = try #require(upload.id)
        let file = sandbox.spool.appending(path: "uploads/\(id.prefix(1))/\(id).data").path()
        try eventually("content of \(upload.name)", seconds: 60) {
            let attributes = try? FileManager.default.attributesOfItem(atPath: file)
            return (attributes?[.size] as? UInt64 ?? 0) > offset
        }
    }

    func awaitRequests(_ upload: UpgradeUpload, _ number: Int = 1) throws {
        try eventually("\(upload.name) reaches its upstream", seconds: 60) {
            count(upload) >= number
        }
    }

    func awaitState(_ upload: UpgradeUpload, _ words: Set<String>) throws {
        let id = try #require(upload.id)
        var last: [String: String]?
        do {
            try eventually("\(upload.name) is \(words.sorted())", seconds: 60) {
                last = try self.list()[id]
                return words.contains(last?["state"] ?? "none")
            }
        } catch {
            throw NeverHappened(
                description: "\(error); it is \(last ?? [:])\n\(sandbox.log.suffix(4_000))"
            )
        }
    }

    func take(_ response: WireClient.Answer, of upload: UpgradeUpload) {
        upload.response = .init(
            status: response.status,
            upstream: response["x-upstream"],
            content: response.content
        )
    }

    // MARK: Facts about uploads

    func list() throws -> [String: [String: String]] {
        let lines = try sandbox.spoolgate("list", "--json").output.split(separator: "\n")
        return try lines.reduce(into: [:]) { all, line in
            let object = try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any]
            let members = (object ?? [:]).mapValues { "\($0)" }
            if let id = members["upload"] { all[id] = members }
        }
    }

    private static let constant = [
        "upload", "length", "owner", "route", "method", "target", "resource", "created", "promise",
        "node",
    ]

    /// Whether the running build does not know a word of the upload's record: an earlier one, of an accepted upload.
    private func isLeftAlone(_ said: [String: String]?) -> Bool {
        said?["reason"]?.contains("'accepted=") == true
    }

    func count(_ upload: UpgradeUpload) -> Int {
        upload.earlierRequests + upstreams.requests(named: upload.name).count
    }

    // MARK: Checks

    /// Checks that each upload is unchanged for its client, operator and upstream.
    func check() throws {
        let listed = try list()
        for upload in uploads {
            for one in [upload] + upload.parts where one.resource != nil {
                do { try check(one, listed) } catch {
                    Issue.record("\(one.name): \(error)\n\(sandbox.log.suffix(4_000))")
                }
            }
        }
    }

    private func check(
        _ upload: UpgradeUpload,
        _ listed: [String: [String: String]]
    ) throws {
        let name = upload.name
        if upload.state == .gone {
            #expect(try ask(upload) == nil, "\(name) still exists")
        } else {
            var said = listed[try #require(upload.id)]
            if !isLeftAlone(said), !upload.state.words.contains(said?["state"] ?? "") {
                try awaitState(upload, upload.state.words)
                said = try list()[upload.id ?? ""]
            }
            if isLeftAlone(said) { return }
            for (key, before) in upload.listed {
                #expect(said?[key] == before, "\(name): \(key)")
            }
        }
        if let status = upload.status {
            let response = try sandbox.ask("GET", status)
            let words = upload.state.words.map { "\"state\":\"\($0)\"" }
            #expect(
                upload.state == .gone
                    ? response.status == 404 : words.contains(where: response.text.contains),
                "\(name): \(response.status) \(response.text)"
            )
        }
        switch upload.state {
        case .partial:
            let offset = try #require(try ask(upload), "\(name) is gone")
            #expect(offset >= upload.told && offset <= upload.sent, "\(name)")
            upload.told = offset
        // A HEAD request by a tus client starts a delivery.
        case .waiting where !upload.isTus:
            #expect(try ask(upload) == upload.content.count, "\(name)")
        case .responded: try checkReplay(upload)
        case .repeated: (upload.state, upload.requests) = (.delivered, upload.requests + 1)
        default: break
        }
        try checkRequests(upload)
    }

    /// The repetition causes no request to an upstream.
    private func checkReplay(_ upload: UpgradeUpload) throws {
        upload.told = upload.content.count
        let response = try append(upload, to: upload.told, complete: true)
        let again = UpgradeUpload.Response(
            status: response.status,
            upstream: response["x-upstream"],
            content: response.content
        )
        let first = try #require(upload.response)
        #expect(again.status == first.status && again.upstream == first.upstream, "\(upload.name)")
        // Its content is too large to be stored.
        let isStored = upload.name != "answered-at-length"
        #expect(again.content == (isStored ? first.content : Data()), "\(upload.name)")
    }

    private func checkRequests(_ upload: UpgradeUpload) throws {
        #expect(count(upload) == upload.requests, "requests for \(upload.name)")
        let content = upload.content
        for request in upstreams.requests(named: upload.name) {
            let whole = Data(request.content)
            #expect(
                upload.route == "form"
                    ? whole.range(of: content) != nil : whole == content,
                "content of \(upload.name)"
            )
        }
    }

    // MARK: To the end

    /// Brings the chosen uploads to their end, once each, and checks that each ends once.
    func carry(_ cases: [UpgradeCase], where isChosen: (Int) -> Bool = { _ in true }) throws {
        let listed = try list()
        for (place, upload) in uploads.enumerated() where isChosen(place) {
            guard !isLeftAlone(upload.id.flatMap { listed[$0] }),
                carried.insert(upload.name).inserted
            else { continue }
            guard upload.state != .gone, let scene = cases.first(where: { $0.name == upload.name })
            else { continue }
            do { try scene.carry(self, upload) } catch {
                Issue.record("\(upload.name): \(error)\n\(sandbox.log.suffix(4_000))")
            }
        }
        try check()
    }

    func finish(_ upload: UpgradeUpload, _ fields: [String] = []) throws {
        upload.told = try #require(try ask(upload), "\(upload.name) is gone")
        let response = try append(upload, to: upload.size, complete: true, fields)
        upload.requests += 1
        guard !upload.isTus else { return upload.state = .delivered }
        #expect(response.status == 201 && response["x-upstream"] == upload.name, "\(response.text)")
        take(response, of: upload)
        upload.state = .responded
    }

    func deliver(_ upload: UpgradeUpload, by command: String) throws {
        try upstreams.startLater()
        let done = try sandbox.spoolgate(command, try #require(upload.id))
        #expect(done.status == 0, "\(upload.name): \(done.errors)")
        upload.requests += 1
        (upload.state, upload.response) = (.delivered, nil)
    }

    /// Sets an upload's age and purges expired uploads.
    func expire(_ upload: UpgradeUpload, days: Double) throws {
        let id = try #require(upload.id)
        let folder = sandbox.spool.appending(path: "uploads/\(id.prefix(1))").path()
        for name in try FileManager.default.contentsOfDirectory(atPath: folder)
        where name.hasPrefix(id) {
            try FileManager.default.setAttributes(
                [.modificationDate: written.addingTimeInterval(-86_400 * days)],
                ofItemAtPath: "\(folder)/\(name)"
            )
        }
        let purge = try sandbox.spoolgate("purge", "--json")
        #expect(purge.status == 0, "\(purge.errors)")
        #expect(purge.output.contains(id), "\(upload.name) is not purged: \(purge.output)")
        upload.state = .gone
    }

    func purge(_ upload: UpgradeUpload) throws {
        let purge = try sandbox.spoolgate("purge", "--force", try #require(upload.id))
        #expect(purge.status == 0, "\(upload.name): \(purge.errors)")
        upload.state = .gone
    }

    /// Only expired uploads are purged, and a forced purge leaves an empty spool.
    func checkPurge() throws {
        let purge = try sandbox.spoolgate("purge")
        #expect(purge.output.contains("Removed 0 uploads"), "\(purge.output)")
        #expect(try SpoolInspection(sandbox).faults() == [])
        for upload in uploads { try checkRequests(upload) }
    }
}
