// The openssl command as an authority and a TLS server.
//
// Its HTTP is that of `s_server -www`, or of a script through its pipes.

import Foundation
import SpoolgatePosix
import Synchronization

/// A private authority in its own directory.
package final class TestAuthority {
    private let directory: ScratchDirectory
    package let certificate: String
    private let key: String

    /// Creates an authority.
    package init() throws {
        directory = try ScratchDirectory()
        certificate = directory.file("ca.pem")
        key = directory.file("ca.key")
        try OpenSSLCommand.run([
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=Test authority",
        ])
    }

    /// A PEM file with a key and a certificate for `name`, which expired yesterday if `isExpired`.
    package func identity(_ name: String, isExpired: Bool = false) throws -> String {
        let (request, leafKey, leaf) =
            (
                directory.file("\(name).csr"), directory.file("\(name).key"),
                directory.file("\(name).crt")
            )
        try OpenSSLCommand.run([
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
            leafKey, "-out", request, "-subj", "/CN=\(name)", "-addext",
            "subjectAltName=DNS:\(name)",
        ])
        try OpenSSLCommand.run([
            "x509", "-req", "-in", request, "-CA", certificate, "-CAkey", key, "-CAcreateserial",
            "-copy_extensions", "copy", "-days", isExpired ? "-1" : "2", "-out", leaf,
        ])
        let both = directory.file("\(name).pem")
        let parts = try [leafKey, leaf].map { try String(contentsOfFile: $0, encoding: .utf8) }
        try parts.joined().write(toFile: both, atomically: true, encoding: .utf8)
        return both
    }
}

/// `openssl s_server`, running until the value is released.
package final class OpenSSLCommand {
    /// The error of a failed command.
    package struct Failed: Error { var arguments: [String] }

    private static let path = "/usr/bin/openssl"
    package static var isThere: Bool { FileManager.default.isExecutableFile(atPath: path) }

    package let base: String
    private let process = Process()
    private let input = Pipe()
    private let output = Pipe()

    fileprivate static func run(_ arguments: [String]) throws {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: path)
        process.arguments = arguments
        process.standardError = FileHandle.nullDevice
        process.standardOutput = FileHandle.nullDevice
        try process.run()
        process.waitUntilExit()
        guard process.terminationStatus == 0 else { throw Failed(arguments: arguments) }
    }

    /// Serves with the key and certificate in a PEM file.
    package init(serving identity: String, more: [String] = ["-www"]) throws {
        let port = try FreePort.take(1)[0]
        base = "https://localhost:\(port)"
        process.executableURL = URL(fileURLWithPath: Self.path)
        process.arguments =
            ["s_server", "-accept", "127.0.0.1:\(port)", "-cert", identity, "-key", identity]
            + more
        process.standardInput = input
        process.standardOutput = output
        process.standardError = FileHandle.nullDevice
        try process.run()
        try eventually("s_server listens") { Self.isListening(port) }
    }

    deinit {
        // SIGKILL: a child inherits the test runner's blocked signals, which may include SIGTERM.
        kill(process.processIdentifier, SIGKILL)
        process.waitUntilExit()
    }

    /// Whether a socket listens on the port, without connecting.
    private static func isListening(_ port: Int) -> Bool {
        // Reads to the end: each read returns at most a page.
        let file = FileHandle(forReadingAtPath: "/proc/net/tcp")
        let table = (try? file?.readToEnd()).map { String(decoding: $0, as: UTF8.self) } ?? ""
        let local = "0100007F:" + String(format: "%04X", port)
        return table.split(separator: "\n").contains { line in
            let columns = line.split(separator: " ")
            return columns.count > 3 && columns[1] == local && columns[3] == "0A"
        }
    }

    /// The served request.
    package final class Served: Sendable {
        private let request = Mutex<(head: String, content: [UInt8])?>(nil)
        /// Nil until complete.
        package var head: String? { request.withLock { $0?.head } }
        /// Nil until complete.
        package var content: [UInt8]? { request.withLock { $0?.content } }

        fileprivate func take(_ head: Data, _ content: Data) {
            request.withLock { $0 = (String(decoding: head, as: UTF8.self), Array(content)) }
        }
    }

    /// Reads one request with `contentLength` bytes of content and responds.
    package func respondOnce(contentLength: Int, _ response: String) -> Served {
        let served = Served()
        let (from, to) = (output.fileHandleForReading, input.fileHandleForWriting)
        Thread.detachNewThread {
            var bytes = Data()
            while true {
                let part = from.availableData
                guard !part.isEmpty else { return }
                bytes += part
                guard let end = bytes.range(of: Data("\r\n\r\n".utf8)),
                    bytes.count - end.upperBound >= contentLength
                else { continue }
                served.take(bytes[..<end.upperBound], bytes[end.upperBound...])
                to.write(Data(response.utf8))
                return
            }
        }
        return served
    }
}
