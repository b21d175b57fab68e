import ResumableUpload

let token = ResumeToken(url: "http://localhost/u/1", target: "http://localhost/f")
let upload = Upload.resume(from: token, body: .bytes([1, 2, 3]))
print(upload.token?.text ?? "no token")
