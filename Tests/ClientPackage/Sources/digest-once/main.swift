import Crypto
import ResumableUpload

let token = Upload.Token(url: "http://localhost/u/1", target: "http://localhost/f")
print(SHA256.hash(data: Array(token.text.utf8)))
