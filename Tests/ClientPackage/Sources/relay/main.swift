import AsyncHTTPClient
import ResumableUpload

// Arguments: the URL of a file, and the URL to upload it to.
let request = HTTPClientRequest(url: CommandLine.arguments[1])
let response = try await HTTPClient.shared.execute(request, timeout: .seconds(60))
let length = response.headers.first(name: "Content-Length").flatMap { Int64($0) }
let body = Upload.Body.stream(response.body.map { $0.readableBytesView }, length: length)
let response = try await Upload(body, to: CommandLine.arguments[2]).run()
print("accepted: \(response.status.code)")
