// TLS before a plain server on this machine, by Python's `ssl` module.

import Foundation
import SpoolgatePosix

/// A relay from TLS to plain TCP, until the value is released.
package final class TLSServer {
    package let port: UInt16
    private let process = Process()

    private static let python = "/usr/bin/python3"
    /// Whether Python is installed.
    package static var isThere: Bool { FileManager.default.isExecutableFile(atPath: python) }

    private static let script = """
        import socket, ssl, sys, threading
        port, identity, server = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(identity)
        listener = socket.create_server(("127.0.0.1", port), backlog=256)
        print("listens", flush=True)

        def pump(source, sink):
            try:
                while data := source.recv(65536):
                    sink.sendall(data)
            except OSError:
                pass
            for end in (source, sink):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

        def serve(client):
            try:
                client = context.wrap_socket(client, server_side=True)
                upstream = socket.create_connection(("127.0.0.1", server))
            except OSError:
                return client.close()
            threading.Thread(target=pump, args=(upstream, client), daemon=True).start()
            pump(client, upstream)

        while True:
            threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
        """

    /// Starts the relay to the port `server`, with the key and certificate in the PEM file `identity`.
    package init(_ identity: String, before server: UInt16) throws {
        port = UInt16(try FreePort.take(1)[0])
        let output = Pipe()
        process.executableURL = URL(fileURLWithPath: Self.python)
        process.arguments = ["-c", Self.script, "\(port)", identity, "\(server)"]
        process.standardOutput = output
        process.standardError = FileHandle.nullDevice
        try process.run()
        guard try output.fileHandleForReading.read(upToCount: 1)?.isEmpty == false else {
            throw NeverHappened(description: "the TLS server does not listen on port \(port)")
        }
    }

    deinit {
        // SIGKILL: a child inherits blocked signals, perhaps SIGTERM.
        kill(process.processIdentifier, SIGKILL)
        process.waitUntilExit()
    }
}
