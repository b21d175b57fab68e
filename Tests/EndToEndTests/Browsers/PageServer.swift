// The shipped page on its own origin, which accepts no uploads.

import Foundation
import SpoolgatePosix
import SpoolgateTestSupport

final class PageServer {
    let server: LoopbackOrigin
    private let uploads = Monitor("")

    init() throws {
        let uploads = uploads
        server = try LoopbackOrigin { connection in
            while let request = try connection.receiveRequest() {
                if request.target == "/framed" {
                    let fields = ["Content-Type: text/html; charset=utf-8"]
                    try connection.response("200 OK", fields: fields, content: Self.framed)
                    continue
                }
                let uploads = uploads.update { $0 }
                let own = "http://" + (request.values("Host").first ?? "")
                guard let (type, text) = Self.file(request.target) else {
                    try connection.response("404 Not Found")
                    continue
                }
                try connection.response(
                    "200 OK",
                    fields: [
                        "Content-Type: \(type); charset=utf-8",
                        // WebKit's `'self'` matches nothing in a frame without an origin.
                        "Content-Security-Policy: default-src 'self' \(own); connect-src \(uploads)",
                        // A sandboxed page has no origin, so its modules are from another one.
                        "Access-Control-Allow-Origin: *",
                    ],
                    content: text.replacing("\"/files/\"", with: "\"\(uploads)/files/\"")
                )
            }
        }
    }

    /// A page that embeds the shipped one in a frame with scripts but no storage.
    private static let framed = """
        <!doctype html><title>Framed</title>
        <iframe sandbox="allow-scripts allow-forms" src="/" width="900" height="700"></iframe>
        """

    var origin: String { "http://localhost:\(server.port)" }

    func upload(to origin: String) { uploads.update { $0 = origin } }

    private static func file(_ target: String) -> (type: String, text: String)? {
        let types = [
            "html": "text/html", "css": "text/css", "js": "text/javascript",
            "svg": "image/svg+xml",
        ]
        let name = target == "/" ? "index.html" : String(target.dropFirst())
        let file = Sandbox.root.appending(path: "nginx/demo/\(name)")
        guard let type = types[file.pathExtension],
            let text = try? String(contentsOf: file, encoding: .utf8)
        else { return nil }
        return (type, text)
    }
}
