import Foundation
import HTTPTypes
import ResumableUpload

/// 64 MiB that can be made again: what a stream gave before a pause it gives once more, to be skipped.
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
// The upload waits for this function: what it wrote is there before the upload goes on.
let keep: @Sendable (Upload.Event) -> Void = { event in
    guard case .resumable(let token) = event else { return }
    try? token.text.write(toFile: file, atomically: true, encoding: .utf8)
}
let upload =
    kept.map { .resume(from: $0, body: .stream(Pieces()), onEvent: keep) }
    ?? Upload(.stream(Pieces()), to: url, onEvent: keep)
// The first process pauses after a quarter, as a program does that is told to end.
Task {
    for await case .progress(let progress) in upload.events where kept == nil {
        if progress.received >= 16 << 20 { upload.requestPause() }
    }
}
do {
    let answer = try await upload.run()
    try? FileManager.default.removeItem(atPath: file)
    print("taken: \(answer.status.code)")
} catch let error as TransferError {
    print(error.kind == .paused ? "paused" : "\(error)")
}
