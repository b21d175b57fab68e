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
var options = UploadOptions()
options.fields[.contentType] = "application/octet-stream"
let kept = (try? String(contentsOfFile: file, encoding: .utf8)).flatMap { ResumeToken($0) }
let upload =
    kept.map { Upload.resume(from: $0, body: .stream(Pieces()), options: options) }
    ?? Upload(.stream(Pieces()), to: url, options: options)
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
} catch  where error.kind == .paused {
    try error.token?.text.write(toFile: file, atomically: true, encoding: .utf8)
    print("paused")
}
