// Runs on a Mac only (macOS 14 or later), and in no test, because Linux has no such URLSession. README.md in this
// folder has its requirements, and explains its report.
//
//     swift Tests/Apple/URLSessionProof.swift http://localhost:8080/files/

import Foundation

struct Failure: Error {
    let reason: String

    init(_ reason: String) { self.reason = reason }
}

struct NotTried: Error {
    let reason: String

    init(_ reason: String) { self.reason = reason }
}

/// Prints a line immediately, even into a pipe.
func say(_ line: String) { FileHandle.standardOutput.write(Data((line + "\n").utf8)) }

struct Options {
    /// The URL of uploads, with a trailing slash.
    let target: URL
    /// The URL of delivered uploads, with a trailing slash.
    var delivered: URL
    /// A large upload's length in bytes.
    var length: Int64 = 256 << 20
    /// The seconds that a case waits for one event.
    var patience = 120.0
    /// A shell command that closes the server's connections.
    var cut: String?
    var fields: [String: String] = [:]
    var acceptsAnyCertificate = false

    static let usage = """
        usage: swift URLSessionProof.swift URL [--mebibytes N] [--cut COMMAND] [--delivered URL]
                     [--header 'Name: value'] [--insecure] [--patience SECONDS]
        """

    init?(_ arguments: [String]) {
        var rest = arguments[...]
        guard let target = rest.popFirst().flatMap(URL.init(string:)), target.host != nil else {
            return nil
        }
        self.target = target
        delivered = URL(string: "/delivered/", relativeTo: target)?.absoluteURL ?? target
        while let option = rest.popFirst() {
            if option == "--insecure" {
                acceptsAnyCertificate = true
                continue
            }
            guard let value = rest.popFirst() else { return nil }
            switch option {
            case "--mebibytes":
                guard let number = Int64(value), number > 0 else { return nil }
                length = number << 20
            case "--cut":
                cut = value
            case "--delivered":
                guard let url = URL(string: value) else { return nil }
                delivered = url
            case "--header":
                let parts = value.split(separator: ":", maxSplits: 1)
                guard parts.count == 2 else { return nil }
                fields[String(parts[0])] = parts[1].trimmingCharacters(in: .whitespaces)
            case "--patience":
                guard let number = Double(value) else { return nil }
                patience = number
            default:
                return nil
            }
        }
    }
}

/// An upload's content as a stream from any offset: a thread writes a file into a bound stream pair.
final class Feeder: @unchecked Sendable {
    private let file: URL
    private let condition = NSCondition()
    private var limit: Int64

    /// Stops at `limit` until `release()`.
    init(_ file: URL, limit: Int64 = .max) {
        self.file = file
        self.limit = limit
    }

    func release() {
        condition.lock()
        limit = .max
        condition.broadcast()
        condition.unlock()
    }

    func stream(from offset: Int64) -> InputStream? {
        var input: InputStream?
        var output: OutputStream?
        Stream.getBoundStreams(withBufferSize: 1 << 16, inputStream: &input, outputStream: &output)
        guard let output, let handle = try? FileHandle(forReadingFrom: file) else { return nil }
        // Only the thread uses it.
        nonisolated(unsafe) let sink = output
        Thread.detachNewThread {
            sink.open()
            defer { sink.close() }
            try? handle.seek(toOffset: UInt64(offset))
            var position = offset
            while let part = try? handle.read(upToCount: 1 << 16), !part.isEmpty {
                self.condition.lock()
                while position >= self.limit { self.condition.wait() }
                self.condition.unlock()
                guard Self.write(part, to: sink) else { return }
                position += Int64(part.count)
            }
        }
        return input
    }

    /// Writes all of `part`; false if the stream is closed.
    private static func write(_ part: Data, to output: OutputStream) -> Bool {
        part.withUnsafeBytes { (bytes: UnsafeRawBufferPointer) in
            var rest = bytes.bindMemory(to: UInt8.self)[...]
            while !rest.isEmpty {
                let written = UnsafeBufferPointer(rebasing: rest).baseAddress
                    .map { output.write($0, maxLength: rest.count) }
                guard let written, written > 0 else { return false }
                rest = rest.dropFirst(written)
            }
            return true
        }
    }
}

/// One task and the calls of its delegate.
@available(macOS 14.0, *)
final class Course: NSObject, URLSessionDataDelegate, URLSessionDownloadDelegate,
    @unchecked Sendable
{
    struct State {
        var informational: [HTTPURLResponse] = []
        /// The content bytes that this task sent.
        var sent: Int64 = 0
        /// The bytes of the downloaded file, including those before a pause.
        var received: Int64 = 0
        /// The offset at which a download resumed.
        var resumedAt: Int64?
        /// The offset of each stream that URLSession requested.
        var streams: [Int64] = []
        var response: HTTPURLResponse?
        var content = Data()
        var file: URL?
        var error: (any Error)?
        var isEnded = false
        /// The result of a cancellation, once it has one.
        var resumeData: Data??
        /// The task's requests, with their responses' statuses.
        var requests: [String] = []

        /// The upload resource that the server named first.
        var resource: URL? {
            informational.lazy.filter { $0.statusCode == 104 }
                .compactMap { $0.value(forHTTPHeaderField: "Location") }.first
                .flatMap(URL.init(string:))
        }
    }

    private let condition = NSCondition()
    private var state = State()
    private let options: Options
    private let feeder: Feeder?

    init(_ options: Options, feeder: Feeder? = nil) {
        self.options = options
        self.feeder = feeder
    }

    func session(_ configuration: URLSessionConfiguration = .ephemeral) -> URLSession {
        configuration.timeoutIntervalForRequest = options.patience
        return URLSession(configuration: configuration, delegate: self, delegateQueue: nil)
    }

    private func note(_ change: (inout State) -> Void) {
        condition.lock()
        change(&state)
        condition.broadcast()
        condition.unlock()
    }

    /// Waits until a condition holds, for at most the command line's patience.
    @discardableResult
    func wait(for what: String, until holds: (State) -> Bool) throws -> State {
        let deadline = Date(timeIntervalSinceNow: options.patience)
        condition.lock()
        defer { condition.unlock() }
        while !holds(state) {
            guard condition.wait(until: deadline) else {
                throw Failure(
                    "no \(what) within \(Int(options.patience)) s: \(state.sent) bytes sent, "
                        + "\(state.informational.count) informational responses"
                )
            }
        }
        return state
    }

    var now: State {
        condition.lock()
        defer { condition.unlock() }
        return state
    }

    func end() throws -> State { try wait(for: "end of the task") { $0.isEnded } }

    func pause(_ task: URLSessionUploadTask) throws -> Data {
        task.cancel(byProducingResumeData: { data in self.note { $0.resumeData = .some(data) } })
        return try resumeData()
    }

    func pause(_ task: URLSessionDownloadTask) throws -> Data {
        task.cancel(byProducingResumeData: { data in self.note { $0.resumeData = .some(data) } })
        return try resumeData()
    }

    private func resumeData() throws -> Data {
        let state = try wait(for: "resume data") { $0.resumeData != nil && $0.isEnded }
        guard case .some(.some(let data)) = state.resumeData else {
            throw Failure(
                "the cancellation produced no resume data, after \(state.informational.count) "
                    + "informational responses: \(state.error.map(String.init(describing:)) ?? "")"
            )
        }
        return data
    }

    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didReceiveInformationalResponse response: HTTPURLResponse
    ) {
        note { $0.informational.append(response) }
    }

    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        needNewBodyStream completionHandler: @escaping @Sendable (InputStream?) -> Void
    ) {
        note { $0.streams.append(0) }
        completionHandler(feeder?.stream(from: 0))
    }

    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        needNewBodyStreamFrom offset: Int64,
        completionHandler: @escaping @Sendable (InputStream?) -> Void
    ) {
        note { $0.streams.append(offset) }
        completionHandler(feeder?.stream(from: offset))
    }

    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didSendBodyData bytesSent: Int64,
        totalBytesSent: Int64,
        totalBytesExpectedToSend: Int64
    ) {
        note { $0.sent += bytesSent }
    }

    func urlSession(_ session: URLSession, dataTask: URLSessionDataTask, didReceive data: Data) {
        note { $0.content.append(data) }
    }

    func urlSession(
        _ session: URLSession,
        downloadTask: URLSessionDownloadTask,
        didWriteData bytesWritten: Int64,
        totalBytesWritten: Int64,
        totalBytesExpectedToWrite: Int64
    ) {
        note { $0.received = totalBytesWritten }
    }

    func urlSession(
        _ session: URLSession,
        downloadTask: URLSessionDownloadTask,
        didResumeAtOffset fileOffset: Int64,
        expectedTotalBytes: Int64
    ) {
        note { $0.resumedAt = fileOffset }
    }

    func urlSession(
        _ session: URLSession,
        downloadTask: URLSessionDownloadTask,
        didFinishDownloadingTo location: URL
    ) {
        // The file is removed when this method returns.
        let kept = location.deletingLastPathComponent()
            .appendingPathComponent("spoolgate-proof-\(UUID().uuidString)")
        guard (try? FileManager.default.moveItem(at: location, to: kept)) != nil else { return }
        note { $0.file = kept }
    }

    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didFinishCollecting metrics: URLSessionTaskMetrics
    ) {
        let requests = metrics.transactionMetrics.map { transaction in
            let status = (transaction.response as? HTTPURLResponse)?.statusCode
            return "\(transaction.request.httpMethod ?? "?") \(status.map(String.init) ?? "broken")"
        }
        note { $0.requests = requests }
    }

    func urlSession(
        _ session: URLSession,
        task: URLSessionTask,
        didCompleteWithError error: (any Error)?
    ) {
        note {
            $0.response = task.response as? HTTPURLResponse
            $0.error = error
            $0.isEnded = true
        }
        session.finishTasksAndInvalidate()
    }

    func urlSession(
        _ session: URLSession,
        didReceive challenge: URLAuthenticationChallenge,
        completionHandler:
            @escaping @Sendable (URLSession.AuthChallengeDisposition, URLCredential?) -> Void
    ) {
        guard options.acceptsAnyCertificate, let trust = challenge.protectionSpace.serverTrust
        else {
            completionHandler(.performDefaultHandling, nil)
            return
        }
        completionHandler(.useCredential, URLCredential(trust: trust))
    }
}

/// A response of the upstream `directory:`, which `make run` uses.
struct Answer: Decodable {
    let id: String
    let name: String
    let length: Int64
}

enum Body: String {
    case file
    case stream
}

@available(macOS 14.0, *)
final class Proof {
    private let options: Options
    private let folder: URL
    /// The content of every large upload.
    private let large: URL
    /// The URL of the first delivered large upload.
    private var source: URL?

    init(_ options: Options) throws {
        self.options = options
        folder = FileManager.default.temporaryDirectory
            .appendingPathComponent("spoolgate-proof-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        large = folder.appendingPathComponent("large")
        try Self.fill(large, length: options.length)
    }

    deinit { try? FileManager.default.removeItem(at: folder) }

    private static func fill(_ file: URL, length: Int64) throws {
        let random = try FileHandle(forReadingFrom: URL(fileURLWithPath: "/dev/urandom"))
        try Data().write(to: file)
        let handle = try FileHandle(forWritingTo: file)
        var rest = Int(length)
        while rest > 0, let part = try random.read(upToCount: min(rest, 1 << 20)) {
            try handle.write(contentsOf: part)
            rest -= part.count
        }
        try handle.close()
    }

    private func request(_ name: String) -> URLRequest {
        var request = URLRequest(url: options.target.appendingPathComponent(name))
        request.httpMethod = "PUT"
        request.setValue("application/octet-stream", forHTTPHeaderField: "Content-Type")
        for (field, value) in options.fields { request.setValue(value, forHTTPHeaderField: field) }
        return request
    }

    private func task(
        _ body: Body,
        _ name: String,
        in session: URLSession
    ) -> URLSessionUploadTask {
        switch body {
        case .file: session.uploadTask(with: request(name), fromFile: large)
        case .stream: session.uploadTask(withStreamedRequest: request(name))
        }
    }

    /// Checks the response and the delivered content; `resource` is the one in the first 104, nil if none is expected.
    @discardableResult
    private func check(_ state: Course.State, content: URL, resource: URL?) throws -> String {
        if let error = state.error { throw Failure("the task failed: \(error)") }
        guard let response = state.response, response.statusCode == 201 else {
            throw Failure(
                "status \(state.response?.statusCode ?? 0) instead of 201: "
                    + String(decoding: state.content.prefix(300), as: UTF8.self)
            )
        }
        guard let response = try? JSONDecoder().decode(Answer.self, from: state.content) else {
            throw NotTried("the upload got 201, but not from the upstream of make run")
        }
        let length = try content.resourceValues(forKeys: [.fileSizeKey]).fileSize ?? 0
        guard response.length == Int64(length) else {
            throw Failure("\(response.length) bytes were delivered, \(length) were sent")
        }
        var found: [String] = []
        if let resource {
            // A new upload, instead of a resumed one, would have another identifier.
            guard resource.lastPathComponent == response.id else {
                throw Failure("\(resource) is not the upload that was delivered, \(response.id)")
            }
            let isComplete = response.value(forHTTPHeaderField: "Upload-Complete") == "?1"
            let isNotIncomplete = response.value(forHTTPHeaderField: "Upload-Incomplete") == "?0"
            guard isComplete || isNotIncomplete else {
                throw Failure("the final response does not say that the upload is complete")
            }
            let interim = state.informational.filter { $0.statusCode == 104 }
            let version = interim.first?.value(forHTTPHeaderField: "Upload-Draft-Interop-Version")
            found.append("\(interim.count) times 104")
            version.map { found.append("interop version \($0)") }
        }
        let place = options.delivered.appendingPathComponent("\(response.id)-\(response.name)")
        let copy = try download(place)
        if let copy {
            defer { try? FileManager.default.removeItem(at: copy) }
            guard FileManager.default.contentsEqual(atPath: copy.path, andPath: content.path) else {
                throw Failure("\(place) has another content than was sent")
            }
            found.append("\(length) bytes are equal")
            if content == large, source == nil { source = place }
        } else {
            found.append("content not compared: the server does not serve \(options.delivered)")
        }
        return found.joined(separator: ", ")
    }

    /// Downloads a delivered upload; nil if it is not served.
    private func download(_ place: URL) throws -> URL? {
        let course = Course(options)
        course.session().downloadTask(with: place).resume()
        let state = try course.end()
        if let error = state.error { throw Failure("no download of \(place): \(error)") }
        guard state.response?.statusCode == 200 else {
            state.file.map { try? FileManager.default.removeItem(at: $0) }
            return nil
        }
        return state.file
    }

    /// An upload too small for an upload resource.
    func small() throws -> String {
        let content = folder.appendingPathComponent("small")
        try Self.fill(content, length: 64 << 10)
        let course = Course(options)
        course.session().uploadTask(with: request("small.bin"), fromFile: content).resume()
        let state = try course.end()
        let found = try check(state, content: content, resource: nil)
        guard state.informational.allSatisfy({ $0.statusCode != 104 }) else {
            throw Failure("a 104, although the upload is small")
        }
        return "no 104, " + found
    }

    func whole(_ body: Body) throws -> String {
        let course = Course(options, feeder: Feeder(large))
        task(body, "whole-\(body).bin", in: course.session()).resume()
        let state = try course.end()
        guard state.error != nil || state.resource != nil else {
            throw Failure(
                "\(state.informational.count) informational responses, and no 104 with Location"
            )
        }
        return try check(state, content: large, resource: state.resource)
    }

    /// A data task with `httpBodyStream`, which URLSession need not make resumable.
    func bodyStream() throws -> String {
        let feeder = Feeder(large)
        let course = Course(options, feeder: feeder)
        var request = request("body-stream.bin")
        request.httpBodyStream = feeder.stream(from: 0)
        course.session().dataTask(with: request).resume()
        let state = try course.end()
        return try check(state, content: large, resource: state.resource)
    }

    /// Begins an upload, and waits for a sent part and the upload resource.
    private func begin(_ body: Body, _ name: String) throws -> (
        Course, Feeder, URLSessionUploadTask, URL
    ) {
        let feeder = Feeder(large, limit: options.length / 2)
        let course = Course(options, feeder: feeder)
        let task = task(body, name, in: course.session())
        task.resume()
        let state = try course.wait(for: "104 and first quarter of the content") {
            $0.isEnded || ($0.resource != nil && $0.sent >= options.length / 4)
        }
        guard !state.isEnded, let resource = state.resource else {
            if let error = state.error { throw Failure("the task failed: \(error)") }
            throw NotTried("the upload ended before it could be interrupted: --mebibytes more")
        }
        return (course, feeder, task, resource)
    }

    /// Resumes an upload from its resume data, in another session.
    private func goOn(_ data: Data, feeder: Feeder, resource: URL) throws -> String {
        feeder.release()
        let course = Course(options, feeder: feeder)
        course.session().uploadTask(withResumeData: data).resume()
        let state = try course.end()
        let found = try check(state, content: large, resource: resource)
        let from = state.streams.first.map { ", asked for its stream from \($0)" } ?? ""
        return "the second task sent \(state.sent) of \(options.length) bytes\(from), "
            + "\(state.requests.joined(separator: ", ")), " + found
    }

    func paused(_ body: Body) throws -> String {
        let (course, feeder, task, resource) = try begin(body, "paused-\(body).bin")
        return try goOn(course.pause(task), feeder: feeder, resource: resource)
    }

    /// An upload whose connection closes: URLSession resumes it, or leaves resume data in the error.
    func cut(_ body: Body) throws -> String {
        guard let command = options.cut else {
            throw NotTried("--cut names a command that breaks the server's connections")
        }
        let (course, feeder, _, resource) = try begin(body, "cut-\(body).bin")
        let shell = Process()
        shell.executableURL = URL(fileURLWithPath: "/bin/sh")
        shell.arguments = ["-c", command]
        try shell.run()
        shell.waitUntilExit()
        guard shell.terminationStatus == 0 else {
            throw NotTried("the command of --cut ended with \(shell.terminationStatus)")
        }
        if course.now.isEnded, course.now.error == nil {
            throw NotTried("the upload ended before the command of --cut did: --mebibytes more")
        }
        feeder.release()
        let state = try course.end()
        guard let error = state.error else {
            return "by itself, \(state.requests.joined(separator: ", ")), "
                + (try check(state, content: large, resource: resource))
        }
        guard let data = (error as? URLError)?.uploadTaskResumeData else {
            throw Failure("the task failed without resume data: \(error)")
        }
        return "by the error's resume data, "
            + (try goOn(data, feeder: feeder, resource: resource))
    }

    func pausedDownload() throws -> String {
        guard let source else { throw NotTried("nothing to download: see the cases before") }
        let first = Course(options)
        let task = first.session().downloadTask(with: source)
        task.resume()
        let begun = try first.wait(for: "first quarter of the download") {
            $0.isEnded || $0.received >= options.length / 4
        }
        guard !begun.isEnded else {
            throw NotTried("the download ended before it could be paused: --mebibytes more")
        }
        let data = try first.pause(task)
        let second = Course(options)
        second.session().downloadTask(withResumeData: data).resume()
        let state = try second.end()
        if let error = state.error { throw Failure("the second task failed: \(error)") }
        guard let file = state.file else { throw Failure("the second task has no file") }
        defer { try? FileManager.default.removeItem(at: file) }
        guard FileManager.default.contentsEqual(atPath: file.path, andPath: large.path) else {
            throw Failure("the downloaded file has another content")
        }
        guard let offset = state.resumedAt, offset > 0, state.response?.statusCode == 206 else {
            throw Failure("it began anew, with status \(state.response?.statusCode ?? 0)")
        }
        return "resumed at \(offset) of \(options.length) bytes, which are equal"
    }

    /// An upload and a download by the system's own process.
    func background() throws -> String {
        let course = Course(options)
        let name = "spoolgate-proof-\(UUID().uuidString)"
        let session = course.session(.background(withIdentifier: name))
        session.uploadTask(with: request("background.bin"), fromFile: large).resume()
        let state: Course.State
        do {
            state = try course.end()
        } catch let failure as Failure {
            session.invalidateAndCancel()
            throw NotTried("\(failure.reason); the system may want an app with a bundle identifier")
        }
        // NSURLErrorBackgroundSession...: the system, not the server, refuses the session.
        if let error = state.error as? URLError, [-995, -996, -997].contains(error.code.rawValue) {
            throw NotTried("the system refuses a background session of this program: \(error)")
        }
        return try check(state, content: large, resource: state.resource)
    }

    /// Runs every case and returns the number of failures.
    func run() -> Int {
        let cases: [(String, () throws -> String)] = [
            ("small file", small),
            ("file", { try self.whole(.file) }),
            ("stream", { try self.whole(.stream) }),
            ("body stream of a data task", bodyStream),
            ("file, paused and resumed", { try self.paused(.file) }),
            ("stream, paused and resumed", { try self.paused(.stream) }),
            ("file, connection broken", { try self.cut(.file) }),
            ("stream, connection broken", { try self.cut(.stream) }),
            ("download, paused and resumed", pausedDownload),
            ("background session", background),
        ]
        var failed = 0
        for (name, body) in cases {
            do {
                say("ok         \(name): \(try body())")
            } catch let reason as NotTried {
                say("not tried  \(name): \(reason.reason)")
            } catch {
                failed += 1
                say("FAIL       \(name): \((error as? Failure)?.reason ?? "\(error)")")
            }
        }
        return failed
    }
}

guard let options = Options(Array(CommandLine.arguments.dropFirst())) else {
    print(Options.usage)
    exit(64)
}
guard #available(macOS 14.0, *) else {
    print("macOS 14 or later is needed")
    exit(69)
}
say("\(ProcessInfo.processInfo.operatingSystemVersionString), \(options.target)")
exit(try Proof(options).run() == 0 ? 0 : 1)
