// deploy/lighttpd.conf with the marked lines filled in.

import Foundation

enum LighttpdConfiguration {
    static func write(to directory: URL, port: Int) throws -> String {
        let path = directory.path()
        for folder in ["uploads", "empty"] {
            try FileManager.default.createDirectory(
                at: directory.appending(path: folder),
                withIntermediateDirectories: true
            )
        }
        let source = Sandbox.root.appending(path: "deploy/lighttpd.conf")
        let text = try String(contentsOf: source, encoding: .utf8)
            .components(separatedBy: "\n")
            .map { line in
                guard let mark = line.range(of: "# run: ") else { return line }
                switch line[mark.upperBound...].prefix(while: { $0.isLetter || $0 == "-" }) {
                case "port": return "server.port = \(port)"
                case "bind": return "server.bind = \"127.0.0.1\""
                case "pid": return "server.pid-file = \"\(path)/lighttpd.pid\""
                case "log": return "server.errorlog = \"\(path)/error.log\""
                case "root": return "server.document-root = \"\(path)/empty\""
                case "upload-dirs": return "server.upload-dirs = ( \"\(path)/uploads\" )"
                case "origin":
                    return "\"SPOOLGATE_ORIGIN\" => \"http://127.0.0.1:\(port)\","
                case "socket": return "\"socket\" => \"\(path)/spoolgate.sock\","
                default: return line
                }
            }
            .joined(separator: "\n")
        let file = directory.appending(path: "lighttpd.conf")
        try text.write(to: file, atomically: true, encoding: .utf8)
        return file.path()
    }
}
