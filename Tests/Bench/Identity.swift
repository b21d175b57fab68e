// What a TLS server of the benchmark shows of itself: a key and a certificate that is its own authority.

/// A TLS server's port and files.
struct Identity {
    /// The port of 127.0.0.1 that it listens on.
    let port: UInt16
    /// PEM file of the certificate, which clients are given as the authority.
    let certificate: String
    /// PEM file of its key.
    let key: String

    /// Has the openssl command make the files in a directory.
    ///
    /// - Throws: `BenchFailure` if there is no such command, or it fails.
    init(in directory: String, log: String) throws {
        port = try freePort()
        certificate = directory + "/sink.pem"
        key = directory + "/sink.key"
        _ = try CommandRun(
            "openssl",
            program: findProgram("openssl"),
            arguments: [
                "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=bench",
                "-addext", "subjectAltName=IP:127.0.0.1",
            ],
            output: directory + "/openssl.out",
            log: log
        )
    }
}
