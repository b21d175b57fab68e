import HTTPTypes
import ResumableUpload

let (body, writer) = Upload.Body.makeStream()
async let response = Upload(body, to: CommandLine.arguments[1]).run()
for number in 1...100_000 {
    // Waits while the upload has no space: on a slow network the writer waits, and memory stays bounded.
    try await writer.write("\(number),\(number * number)\n".utf8)
}
writer.finish()
print("accepted: \(try await response.status.code)")
