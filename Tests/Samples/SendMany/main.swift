import Foundation
import HTTPTypes
import ResumableUpload

// Arguments: a URL that ends in a slash, and files. Four are sent at a time, over reused connections.
let url = CommandLine.arguments[1]
var options = Upload.Options()
options.method = .put
let session = TransferSession(maximumTransfers: 4, uploadOptions: options)
try await withThrowingTaskGroup(of: String.self) { group in
    for path in CommandLine.arguments.dropFirst(2) {
        group.addTask {
            let name = URL(filePath: path).lastPathComponent
            let response = try await session.upload(.file(path), to: url + name).run()
            return "\(name): \(response.status.code)"
        }
    }
    for try await line in group { print(line) }
}
