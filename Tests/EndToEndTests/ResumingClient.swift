// A client that knows only the protocol: after each failure it requests the offset and resumes. It records broken
// promises.
//
// Invariant: its offsets come only from responses.

import Foundation
import SpoolgatePosix
import SpoolgateTestSupport

/// One thread at a time uses it: its own while it runs, then the round's.
final class ResumingClient: @unchecked Sendable {
    struct Task {
        var number: Int
        var method: String
        /// Has the upstream's orders in its query.
        var target: String
        var content: Data
        /// Creates an empty upload resource first.
        var isCareful: Bool
        var version: Int
        /// Appends before the last one.
        var partialAppends: Int
        /// Parts of its first request after which it closes the connection; 0: never.
        var breaksAfter: Int
        /// Microseconds after each part.
        var pace: UInt32 = 0
    }

    enum End: Equatable {
        case responded
        /// The upload will not be repeated.
        case unknown
        case gone
    }

    /// One upload resource, or the attempt to create one.
    struct Creation {
        let target: String
        var location: String?
        var told = 0
        /// The most bytes ever sent.
        var sent = 0
        var end: End?
    }

    let task: Task
    /// Other threads may read them while it runs.
    var creations: [Creation] { made.update { $0 } }
    private let made = Monitor<[Creation]>([])
    private(set) var faults: [String] = []
    private(set) var retrievals = 0
    /// Interim responses with an offset.
    private(set) var reports = 0
    private let port: Int
    private let moments: Moments
    private var requests = 0

    init(_ task: Task, port: Int, _ moments: Moments) {
        self.task = task
        self.port = port
        self.moments = moments
    }

    private var current: Creation {
        get { creations[creations.count - 1] }
        set { made.update { $0[$0.count - 1] = newValue } }
    }

    func run(until deadline: Date) {
        while Date() < deadline {
            do {
                if creations.isEmpty || current.end == .gone || current.location == nil {
                    try create()
                } else {
                    try resume()
                }
            } catch {
                // The daemon may be restarting.
                usleep(5_000)
            }
            if let end = creations.last?.end, end != .gone { return }
        }
        faults.append("not at its end before the deadline: \(creations)")
    }

    func checkReplay() {
        do {
            let response = try append(
                from: task.content.count,
                to: task.content.count,
                isLast: true
            )
            take(response)
            if response["x-upstream"] == nil { faults.append("no replay: \(response.status)") }
        } catch {
            faults.append("no replay: \(error)")
        }
    }

    // MARK: Requests

    private func create() throws {
        let target = task.target.replacingOccurrences(of: "*", with: "\(creations.count)")
        made.update { $0.append(Creation(target: target)) }
        let client = try connect()
        client.sendHead(
            task.method,
            target,
            versionField + [
                "Upload-Complete: \(task.isCareful ? "?0" : "?1")",
                "Content-Length: \(task.isCareful ? 0 : task.content.count)",
            ]
        )
        moments.pass(.creating)
        take(try exchange(client, from: 0, to: task.isCareful ? 0 : task.content.count))
    }

    private func resume() throws {
        guard let location = current.location else { return }
        let client = try connect()
        client.sendHead("HEAD", location, versionField)
        moments.pass(.retrieving)
        let head = try client.read(head: true)
        guard head.status == 204 else { return take(head) }
        retrievals += 1
        note(offset: head["upload-offset"])
        let size = task.content.count
        if head["upload-complete"] == "?1", current.told != size {
            faults.append("complete at \(current.told) of \(size)")
        }
        var end = size
        if requests <= task.partialAppends, current.told < size {
            end = current.told + (size - current.told) / (task.partialAppends + 2 - requests)
        }
        // The last append may also be empty.
        let isLast = end == size && (task.partialAppends == 0 || current.told == size)
        take(try append(from: current.told, to: end, isLast: isLast))
    }

    private func append(from offset: Int, to end: Int, isLast: Bool) throws -> WireClient.Answer {
        let client = try connect()
        client.sendHead(
            "PATCH",
            current.location ?? "/",
            versionField + [
                "Upload-Offset: \(offset)", "Upload-Complete: ?\(isLast ? 1 : 0)",
                "Content-Type: application/partial-upload", "Content-Length: \(end - offset)",
            ]
        )
        return try exchange(client, from: offset, to: end)
    }

    /// nginx truncates the response of a crashed daemon but keeps the connection open, so only a pause shows the crash.
    private func connect() throws -> WireClient { try WireClient(port: port, contentPatience: 1) }

    private var versionField: [String] { ["Upload-Draft-Interop-Version: \(task.version)"] }

    /// Reads interim responses meanwhile; returns the final one.
    private func exchange(
        _ client: WireClient,
        from offset: Int,
        to end: Int
    ) throws -> WireClient.Answer {
        requests += 1
        var (position, parts) = (offset, 0)
        while position < end {
            while client.isReadable {
                let response = try client.readAny()
                guard response.status < 200 else { return response }
                take(interim: response)
            }
            let next = min(position + (1 << 16), end)
            current.sent = max(current.sent, next)
            guard client.send(task.content[position..<next]) else { break }
            (position, parts) = (next, parts + 1)
            moments.pass(.appending)
            if task.pace > 0 { usleep(task.pace) }
            if requests == 1, parts == task.breaksAfter {
                client.cut(reset: true)
                throw WireClient.Broken(description: "closed by the client")
            }
        }
        moments.pass(.completing)
        while true {
            let response = try client.readAny()
            guard response.status < 200 else { return response }
            take(interim: response)
        }
    }

    // MARK: Responses

    private func take(interim response: WireClient.Answer) {
        guard response.status == 104 else { return }
        take(location: response)
        if let offset = response["upload-offset"] {
            note(offset: offset)
            reports += 1
            moments.pass(.reported)
        }
    }

    private func take(location response: WireClient.Answer) {
        guard current.location == nil, let location = response["location"] else { return }
        current.location = String(location.drop(upTo: "/files/"))
        moments.pass(.created)
    }

    private func take(_ response: WireClient.Answer) {
        if response["x-upstream"] != nil {
            let whole = LoopbackOrigin.response(to: current.target)
            // A response above the size limit is repeated without its content.
            if response.status != 201 || (response.content != whole && !response.content.isEmpty) {
                faults.append("response differs from the upstream's: \(response.status)")
            }
            current.end = .responded
            return
        }
        switch response.status {
        case 201:
            take(location: response)
            note(offset: response["upload-offset"])
        case 204, 409: note(offset: response["upload-offset"])
        case 404: current.end = .gone
        case 410: current.end = .unknown
        case 502 where response["upload-complete"] == "?1": current.end = .unknown
        case 423, 500...599: usleep(5_000)
        default: faults.append("unexpected: \(response.status) \(response.text)")
        }
    }

    private func note(offset text: String?) {
        guard let offset = text.flatMap({ Int($0) }) else {
            return faults.append("no offset: \(text ?? "-")")
        }
        if offset < current.told { faults.append("offset \(offset) after \(current.told)") }
        if offset > current.sent {
            faults.append("offset \(offset), but \(current.sent) bytes sent")
        }
        current.told = offset
    }
}
