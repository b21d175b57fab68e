import AsyncHTTPClient
import ResumableUpload

let token = Upload.Token(url: "http://localhost/u/1", target: "http://localhost/f")
let upload = Upload.resume(from: token, body: .bytes([1, 2, 3]))
let request = HTTPClientRequest(url: "http://localhost/f")
print(upload.token?.text ?? "no token", request.method == .GET ? "beside" : "")
