import Foundation
import HTTPTypes
import ResumableUpload

/// A stream of 64 MiB that yields the same bytes again after a pause; the library skips those that the server has.
struct Pieces: AsyncSequence, AsyncIteratorProtocol, Sendable {
    var number = 0
    mutating func next() async -> [UInt8]? {
        guard number < 1024 else { return nil }
        defer { number += 1 }
        return [UInt8](repeating: UInt8(truncatingIfNeeded: number), count: 1 << 16)
    }
    func makeAsyncIterator() -> Pieces { self }
}

let (url, file) = (CommandLine.arguments[1], CommandLine.arguments[2])
let kept = (try? String(contentsOfFile: file, encoding: .utf8)).flatMap { Upload.Token($0) }
// The upload waits for this function, so the token is in the file before the upload continues.
let keep: @Sendable (Upload.Event) -> Void = { event in
    guard case .resumable(let token) = event else { return }
    try? token.text.write(toFile: file, atomically: true, encoding: .utf8)
}
let upload =
    kept.map { .resume(from: $0, body: .stream(Pieces()), onEvent: keep) }
    ?? Upload(.stream(Pieces()), to: url, onEvent: keep)
// The first process pauses after a quarter, like a program that is asked to stop.
Task {
    for await case .progress(let progress) in upload.events where kept == nil {
        if progress.received >= 16 << 20 { upload.requestPause() }
    }
}
do {
    let response = try await upload.run()
    try? FileManager.default.removeItem(atPath: file)
    print("accepted: \(response.status.code)")
} catch let error as TransferError {
    print(error.kind == .paused ? "paused" : "\(error)")
}
